/* SPDX-License-Identifier: Apache-2.0 */
/* Boundary cases of the C++ operators: every form of new and delete, exceptions and new handlers.
 * Run and compared like cases.c. Calls go through pointers, so that no compiler leaves one out.
 */
#include <cstdio>
#include <initializer_list>
#include <new>

#include "outcome.h"

namespace {

const std::size_t kSizes[] = {
    0,        1,       7,        8,     9,        15,          16,       17,     24,      31,
    32,       33,      48,       63,    64,       65,          100,      128,    1000,    1024,
    4095,     4096,    4097,     32767, 32768,    32769,       65536,    100000, 1048576, 5000000,
    VAST_END, BIT(50), MOST - 1, MOST,  MOST + 1, LAST - 4096, LAST - 1, LAST};

const std::size_t kAligns[] = {1, 2, 3, 8, 16, 24, 32, 48, 64, 128, 4096, 4097, 65536, 1048576};

/* How a new is called: single or array, plain or nothrow. */
enum Form { kSingle, kArray, kNothrow, kNothrowArray, kForms };
const char *const kFormNames[] = {"new", "new[]", "new(nothrow)", "new[](nothrow)"};

void *call_new(Form form, std::size_t bytes) {
    switch (form) {
    case kSingle: return ::operator new(bytes);
    case kArray: return ::operator new[](bytes);
    case kNothrow: return ::operator new(bytes, std::nothrow);
    default: return ::operator new[](bytes, std::nothrow);
    }
}

void *call_new(Form form, std::size_t bytes, std::align_val_t align) {
    switch (form) {
    case kSingle: return ::operator new(bytes, align);
    case kArray: return ::operator new[](bytes, align);
    case kNothrow: return ::operator new(bytes, align, std::nothrow);
    default: return ::operator new[](bytes, align, std::nothrow);
    }
}

/* One of the ways to delete what the form made. */
void call_delete(Form form, int way, void *p, std::size_t bytes) {
    const bool array = form == kArray || form == kNothrowArray;
    if (way == 0) return array ? ::operator delete[](p) : ::operator delete(p);
    if (way == 1) return array ? ::operator delete[](p, bytes) : ::operator delete(p, bytes);
    return array ? ::operator delete[](p, std::nothrow) : ::operator delete(p, std::nothrow);
}

void call_delete(Form form, int way, void *p, std::size_t bytes, std::align_val_t align) {
    const bool array = form == kArray || form == kNothrowArray;
    if (way == 0) return array ? ::operator delete[](p, align) : ::operator delete(p, align);
    if (way == 1)
        return array ? ::operator delete[](p, bytes, align) : ::operator delete(p, bytes, align);
    return array ? ::operator delete[](p, align, std::nothrow)
                 : ::operator delete(p, align, std::nothrow);
}

struct OwnError {};

/* The handler: how often it was called, and when it stops the game, in one of the legal ways. */
int handler_calls;
enum Handler { kNone, kGivesUp, kThrowsBadAlloc, kThrowsOwn, kHandlers };
const char *const kHandlerNames[] = {"none", "gives up", "throws bad_alloc", "throws its own"};

void gives_up() {
    if (++handler_calls == 3) std::set_new_handler(nullptr);
}
void throws_bad_alloc() {
    if (++handler_calls == 2) throw std::bad_alloc();
}
void throws_own() {
    if (++handler_calls == 2) throw OwnError();
}

void install(Handler handler) {
    handler_calls = 0;
    switch (handler) {
    case kGivesUp: std::set_new_handler(gives_up); break;
    case kThrowsBadAlloc: std::set_new_handler(throws_bad_alloc); break;
    case kThrowsOwn: std::set_new_handler(throws_own); break;
    default: std::set_new_handler(nullptr);
    }
}

/* Runs `make` and says what it gave or threw; the block, if any, for more looks. */
template <typename Make> void *outcome_of(Make make) {
    void *p = nullptr;
    const char *thrown = "nothing";
    try {
        p = make();
    } catch (const std::bad_array_new_length &) {
        thrown = "bad_array_new_length";
    } catch (const std::bad_alloc &) {
        thrown = "bad_alloc";
    } catch (const OwnError &) {
        thrown = "own";
    }
    std::printf(" null=%s thrown=%s handler=%d", yes(p == nullptr), thrown, handler_calls);
    return p;
}

/* More of a block: aligned, large enough, writable. */
void look_at(void *p, std::size_t bytes, std::size_t align) {
    if (p == nullptr) return;
    std::printf(" %s room=%s", alignment_word(p, align, bytes),
                yes(malloc_usable_size(p) >= bytes));
    fill(p, bytes, bytes);
    std::printf(" contents=%s", yes(intact(p, bytes, bytes, bytes)));
}

void plain(Form form, std::size_t bytes, int way, Handler handler) {
    install(handler);
    name_case(is_vast(bytes), "%s(%zu) delete %d handler %s", kFormNames[form], bytes, way,
              kHandlerNames[handler]);
    void *p = outcome_of([=] { return call_new(form, bytes); });
    look_at(p, bytes, 16);
    std::putchar('\n');
    call_delete(form, way, p, bytes);
}

/* libstdc++ rounds the size up to the alignment without a look at overflow and then hands out too
 * small a block: not to be compared with. */
bool rounds_to_nothing(std::size_t bytes, std::size_t align) { return bytes > SIZE_MAX - align; }

void aligned(Form form, std::size_t bytes, std::size_t align, int way, Handler handler) {
    if (rounds_to_nothing(bytes, align)) return;
    const auto value = static_cast<std::align_val_t>(align);
    install(handler);
    name_case(is_vast(bytes), "%s(%zu, align %zu) delete %d handler %s", kFormNames[form], bytes,
              align, way, kHandlerNames[handler]);
    void *p = outcome_of([=] { return call_new(form, bytes, value); });
    look_at(p, bytes, align);
    std::putchar('\n');
    call_delete(form, way, p, bytes, value);
}

/* The expressions that programs write: the compiler checks the length of an array. */
struct alignas(64) Wide {
    char bytes[64];
};

template <typename T> void expression(const char *name, std::size_t count) {
    install(kNone);
    name_case(0, "new %s[%zu]", name, count);
    T *made = nullptr;
    void *p = outcome_of([&]() -> void * { return made = new T[count]; });
    if (p != nullptr) std::printf(" %s", alignment_word(p, alignof(T), count * sizeof(T)));
    std::putchar('\n');
    delete[] made;
}

} // namespace

int main() {
    outcome_begin();
    for (int form = 0; form < kForms; form++)
        for (int handler = 0; handler < kHandlers; handler++)
            for (std::size_t bytes : kSizes)
                for (int way = 0; way < 3; way++) {
                    plain(static_cast<Form>(form), bytes, way, static_cast<Handler>(handler));
                    for (std::size_t align : kAligns)
                        if (way == 0 || align == 64)
                            aligned(static_cast<Form>(form), bytes, align, way,
                                    static_cast<Handler>(handler));
                }
    for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{100}, SIZE_MAX / 64,
                              SIZE_MAX / 8, SIZE_MAX / 8 + 1, SIZE_MAX}) {
        expression<char>("char", count);
        expression<long>("long", count);
        expression<Wide>("Wide", count);
    }
    return std::fflush(stdout) == 0 ? 0 : 1;
}
