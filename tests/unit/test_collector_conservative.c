/* SPDX-License-Identifier: Apache-2.0 */
/* Conservative roots: programs in plain C, which hold objects in local variables, registers, and
 * variables of all kinds. Objects are watched through weak references. Where a test expects an
 * object to be freed, its address is stored complemented (hide), and functions that have seen it
 * have returned. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "collector.h"
#include "gc/gc.h"
#include "gc/roots.h"
#include "spawn.h"

#define NOINLINE __attribute__((noinline))

typedef struct wide_node {
    struct wide_node *next;
    uint64_t number, rest[2];
} wide_node;

static const uint64_t LONG_NS = 100000000000; /* any thread comes to a safe point in that time */

static sw_gc *gc;
static uint32_t type;

/* Overwrites what earlier calls have left below this frame. */
static NOINLINE __attribute__((no_sanitize_address)) void wipe(void) {
    uintptr_t words[2000] = {0};
    __asm__ volatile("" ::"r"(words) : "memory");
}

/* AddressSanitizer's fake stacks have the collector's own frames, too, which may retain objects. */
static bool is_exact(void) { return sw_gc_conservative_is_exact(gc); }

static void begin(void) {
    gc = gc_begin(SW_GC_CHECKMARK | SW_GC_CLOBBER);
    type = gc_type(gc, sizeof(wide_node), 1);
    CHECK_EQ(sw_gc_set_roots(gc, SW_GC_CONSERVATIVE), SW_OK);
}

static void end(void) { gc_end(gc); }

static NOINLINE wide_node *make(wide_node *next, uint64_t number) {
    wide_node *made = sw_gc_new(gc, type, 1);
    CHECK(made != NULL);
    if (made == NULL) {
        fprintf(stderr, "%s\n", sw_last_error()->message);
        exit(1);
    }
    made->number = number;
    sw_gc_write(gc, &made->next, next);
    return made;
}

static NOINLINE void collect(void) {
    sw_gc_cycle cycle = gc_collect(gc);
    CHECK_EQ(cycle.given_up, 0);
}

static NOINLINE void first_list(void) {
    wide_node *list = NULL;
    for (uint64_t i = 0; i < 1000; i++) list = make(list, i);
    collect();
    uint64_t left = 1000;
    for (wide_node *at = list; at != NULL; at = at->next) CHECK_EQ(at->number, --left);
    CHECK_EQ(left, 0);
}

static void test_first_list(void) {
    begin();
    first_list();
    wipe();
    collect();
    CHECK(gc_objects(gc) == 0 || !is_exact());
    end();
}

/* --- one object, and where it is -------------------------------------------------------------- */

/* The only pointer to an object, complemented, and a weak reference to it. */
typedef struct hidden {
    uintptr_t complement;
    sw_gc_ref ref;
} hidden;

static NOINLINE void hide(hidden *h) {
    void *made = make(NULL, 77);
    CHECK_EQ(sw_gc_ref_new(gc, SW_GC_WEAK, made, &h->ref), SW_OK);
    h->complement = ~(uintptr_t)made;
}

static NOINLINE bool lives(const hidden *h) {
    void *object = NULL;
    CHECK_EQ(sw_gc_ref_get(gc, h->ref, &object), SW_OK);
    return object != NULL;
}

/* Puts the object where it is to be kept, and removes it from there. Both leave no other copy. */
typedef void place_fn(const hidden *h);
static void *variable, *library;
static void **in_library, **in_library_of_thread;
static _Thread_local void *thread_variable;
static pthread_key_t key;

static NOINLINE void put(void **at, const hidden *h, uintptr_t offset) {
    *at = h == NULL ? NULL : (void *)(~h->complement + offset);
}
static void in_static(const hidden *h) { put(&variable, h, 0); }
static void in_interior(const hidden *h) { put(&variable, h, 9); }
static void in_tls(const hidden *h) { put(&thread_variable, h, 0); }
static void in_library_data(const hidden *h) { put(in_library, h, 0); }
static void in_library_tls(const hidden *h) { put(in_library_of_thread, h, 0); }
static NOINLINE void in_key(const hidden *h) {
    CHECK_EQ(pthread_setspecific(key, h == NULL ? NULL : (void *)~h->complement), 0);
}
static void past_end(const hidden *h) { put(&variable, h, sizeof(wide_node)); }
static void nowhere(const hidden *h) { (void)h; }

static const struct {
    const char *name;
    place_fn *place;
    bool keeps;
} places[] = {{"static data", in_static, true},
              {"interior pointer", in_interior, true},
              {"thread-local storage", in_tls, true},
              {"data of a library", in_library_data, true},
              {"thread-local storage of a library", in_library_tls, true},
              {"value of a key", in_key, true},
              {"past the end", past_end, false},
              {"nowhere", nowhere, false}};
enum { PLACES = sizeof places / sizeof *places };

static NOINLINE void load_library(void) {
    void **(*of_thread)(void);
    library = dlopen(TESTS_HOLDER, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    if (library == NULL) return;
    in_library = dlsym(library, "holder_variable");
    void *symbol = dlsym(library, "holder_thread_variable");
    memcpy(&of_thread, &symbol, sizeof of_thread);
    in_library_of_thread = of_thread();
}

static NOINLINE void unload_library(void) {
    if (library != NULL) CHECK_EQ(dlclose(library), 0);
    library = NULL;
}

static void *test_place(void *arg) {
    size_t i = *(const size_t *)arg;
    hidden h = {0};
    load_library();
    if (library == NULL) return NULL;
    hide(&h);
    wipe();
    places[i].place(&h);
    wipe();
    collect();
    bool kept = lives(&h);
    places[i].place(NULL);
    wipe();
    collect();
    bool left = lives(&h);
    if (!is_exact()) kept = kept && places[i].keeps, left = false;
    if (kept != places[i].keeps || left) fprintf(stderr, "%s\n", places[i].name);
    CHECK_EQ(kept, places[i].keeps);
    CHECK(!left);
    unload_library();
    collect(); /* the library's data is unmapped */
    return NULL;
}

static void *test_place_in_thread(void *arg) {
    test_place(arg);
    return NULL;
}

/* In the main thread, whose thread-local storage is not on its stack, and in another one. */
static void test_places(void) {
    CHECK_EQ(pthread_key_create(&key, NULL), 0);
    for (size_t i = 0; i < (UNDER_TSAN ? 1 : PLACES); i++) {
        begin();
        (void)test_place(&i);
        gc_in_thread(gc, test_place_in_thread, &i);
        CHECK_EQ(gc->joined, 1);
        end();
    }
}

static hidden moving;
static int changes; /* times that the set of modules still changes */

/* Stopping the world reads the clock after the modules were listed. */
static uint64_t load_at_stop(void) {
    if (changes > 0 && changes-- > 0) {
        if (library == NULL)
            load_library();
        else
            unload_library();
        if (library != NULL) put(in_library, &moving, 0);
    }
    return sw_os_now_ns();
}

/* The library that holds the object is loaded between the list of modules and the stop. After too
 * many changes the cycle is abandoned. */
static void test_changing_modules(void) {
    begin();
    hide(&moving);
    wipe();
    changes = 1;
    gc->clock = load_at_stop;
    collect();
    CHECK_EQ(changes, 0);
    CHECK(lives(&moving));
    changes = 1000;
    CHECK_EQ(gc_collect(gc).given_up, 1);
    changes = 0;
    collect();
    gc->clock = sw_os_now_ns;
    unload_library();
    end();
}

#if defined(__x86_64__)
/* Collects while only the register holds the object. */
#define HOLD_IN(name)                                                                              \
    static NOINLINE void hold_in_##name(hidden *h) {                                               \
        __asm__ volatile("pushq %%rbp\n\tpushq %%rbx\n\tpushq %%r12\n\tpushq %%r13\n\t"            \
                         "pushq %%r14\n\tpushq %%r15\n\tmovq (%0), %%" #name "\n\t"                \
                         "notq %%" #name "\n\tsubq $8, %%rsp\n\tcall *%1\n\taddq $8, %%rsp\n\t"    \
                         "popq %%r15\n\tpopq %%r14\n\tpopq %%r13\n\tpopq %%r12\n\t"                \
                         "popq %%rbx\n\tpopq %%rbp"                                                \
                         :                                                                         \
                         : "D"(&h->complement), "a"(collect_aligned)                               \
                         : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");         \
    }
static NOINLINE __attribute__((force_align_arg_pointer)) void collect_aligned(void) { collect(); }
HOLD_IN(rbx)
HOLD_IN(rbp)
HOLD_IN(r12)
HOLD_IN(r13)
HOLD_IN(r14)
HOLD_IN(r15)

static void test_registers(void) {
    static void (*const holds[])(hidden *) = {hold_in_rbx, hold_in_rbp, hold_in_r12,
                                              hold_in_r13, hold_in_r14, hold_in_r15};
    begin();
    for (size_t i = 0; i < sizeof holds / sizeof *holds; i++) {
        hidden h = {0};
        hide(&h);
        wipe();
        holds[i](&h);
        if (!lives(&h)) fprintf(stderr, "register %zu\n", i);
        CHECK(lives(&h));
        wipe();
        collect();
        CHECK(!lives(&h) || !is_exact());
    }
    end();
}
#else
static void test_registers(void) {}
#endif

/* --- stacks ----------------------------------------------------------------------------------- */

enum { DEPTH = 20000 };

static NOINLINE uint64_t descend(uint64_t depth) {
    wide_node *volatile own = make(NULL, depth);
    if (depth < DEPTH)
        CHECK_EQ(descend(depth + 1), depth + 1);
    else
        collect();
    return own->number;
}

static void test_depth(void) {
    begin();
    CHECK_EQ(descend(1), 1);
    end();
}

static bool handled;
static NOINLINE void collect_in_handler(int number) {
    wide_node *volatile own = make(NULL, 5);
    (void)number;
    collect();
    CHECK_EQ(own->number, 5);
    handled = true;
}

static NOINLINE void interrupt(void) {
    wide_node *volatile own = make(NULL, 6);
    handled = false;
    CHECK_EQ(raise(SIGUSR1), 0);
    CHECK(handled);
    CHECK_EQ(own->number, 6);
}

static NOINLINE void interrupt_on(void *stack, size_t bytes) {
    stack_t aside = {.ss_sp = stack, .ss_size = bytes}, none = {.ss_flags = SS_DISABLE};
    CHECK_EQ(sigaltstack(&aside, NULL), 0);
    interrupt();
    CHECK_EQ(sigaltstack(&none, NULL), 0);
}

/* The alternate stack is a mapping, or part of a frame of the other stack. */
static void test_alternate_stack(void) {
    enum { BYTES = 256 << 10 };
    struct sigaction action = {.sa_handler = collect_in_handler, .sa_flags = SA_ONSTACK};
    char in_frame[BYTES];
    void *mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    begin();
    interrupt_on(mapped, BYTES);
    interrupt_on(in_frame, BYTES);
    interrupt(); /* on the own stack */
    end();
    CHECK_EQ(munmap(mapped, BYTES), 0);
}

static ucontext_t outside, coroutine;
static hidden lost;

static void run_coroutine(void) {
    sw_gc_cycle cycle = gc_collect(gc);
    CHECK_EQ(cycle.given_up, 1);
    CHECK_EQ(cycle.freed_objects, 0);
    CHECK(lives(&lost));
}

/* A stack that the system does not know: nothing is freed, because it may hold anything. */
static void test_unknown_stack(void) {
    enum { BYTES = 256 << 10 };
    void *mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    begin();
    hide(&lost);
    wipe();
    CHECK_EQ(getcontext(&coroutine), 0);
    coroutine.uc_stack = (stack_t){.ss_sp = mapped, .ss_size = BYTES};
    coroutine.uc_link = &outside;
    makecontext(&coroutine, run_coroutine, 0);
    CHECK_EQ(swapcontext(&outside, &coroutine), 0);
    wipe();
    collect();
    CHECK(!lives(&lost) || !is_exact());
    end();
    CHECK_EQ(munmap(mapped, BYTES), 0);
}

/* A page of the stack cannot be read: those around it are scanned. */
static NOINLINE void *with_guard_inside(void *arg) {
    wide_node *volatile above = make(NULL, 8);
    char room[32 << 10];
    size_t page = (size_t)getpagesize();
    char *inside = (char *)(((uintptr_t)room + 8192 + page) / page * page);
    CHECK_EQ(mprotect(inside, page, PROT_NONE), 0);
    CHECK_EQ(descend(DEPTH - 3), DEPTH - 3);
    CHECK_EQ(mprotect(inside, page, PROT_READ | PROT_WRITE), 0);
    CHECK_EQ(above->number, 8);
    return arg;
}

static void test_unreadable_page(void) {
    begin();
    gc_in_thread(gc, with_guard_inside, NULL);
    end();
}

enum { DEAD = 100000, WORDS = 1 << 17 };
static uintptr_t planted[WORDS];

/* Numbers of 64 bits, addresses of 47 bits, numbers of 32 bits, and doubles. */
static void plant(uintptr_t *words, size_t count, uint64_t *random) {
    for (size_t i = 0; i < count; i++) {
        uint64_t number = check_random(random);
        double real = (double)number / 3;
        if (i % 4 == 0) words[i] = number;
        if (i % 4 == 1) words[i] = number >> 17;
        if (i % 4 == 2) words[i] = number >> 32;
        if (i % 4 == 3) memcpy(&words[i], &real, sizeof real);
    }
}

static NOINLINE void make_garbage(void) {
    for (int i = 0; i < DEAD; i++) (void)make(NULL, 0);
}

/* At most one object in a thousand may be retained. */
static void test_false_retention(void) {
    uintptr_t local[1000];
    uint64_t random = 11;
    begin();
    plant(planted, WORDS, &random);
    plant(local, 1000, &random);
    make_garbage();
    wipe();
    collect();
    uint64_t retained = gc_objects(gc);
    printf("%d of %d objects retained by %d planted words\n", (int)retained, DEAD, WORDS + 1000);
    CHECK(retained <= DEAD / 1000);
    memset(planted, 0, sizeof planted);
    end();
}

/* --- several threads -------------------------------------------------------------------------- */

/* ThreadSanitizer has 50 MiB of static data, which each cycle scans. */
enum { THREADS = 4, ROUNDS = UNDER_TSAN ? 5 : 300, LONGEST = 300 };
static int rounds;

static void check_list(const wide_node *list, uint64_t length) {
    for (; list != NULL; list = list->next) CHECK_EQ(list->number, --length);
    CHECK_EQ(length, 0);
}

/* Lists in local variables, in threads that never call the collector. */
static void *make_lists(void *arg) {
    uint64_t random = *(const uint64_t *)arg;
    for (int i = 0; i < rounds && !check_failed(); i++) {
        wide_node *list = NULL;
        uint64_t length = check_random(&random) % LONGEST;
        for (uint64_t n = 0; n < length; n++) list = make(list, n);
        check_list(list, length);
    }
    return NULL;
}

static void test_threads(bool in_steps) {
    uint64_t seeds[THREADS] = {1, 2, 3, 4};
    sw_gc_pace pace = {.struct_bytes = sizeof pace, .limit_bytes = 1, .in_steps = in_steps};
    begin();
    rounds = (int)check_rounds("SPANWISE_GC_ROUNDS", ROUNDS);
    CHECK_EQ(sw_gc_set_stop_ns(gc, LONG_NS), SW_OK);
    CHECK_EQ(sw_gc_set_pace(gc, &pace), SW_OK);
    CHECK_EQ(sw_gc_block(gc), SW_OK);
    in_threads(THREADS, make_lists, seeds, sizeof *seeds);
    CHECK_EQ(sw_gc_unblock(gc), SW_OK);
    CHECK_EQ(gc->joined, 1);
    CHECK(gc_last_cycle(gc).number > 0);
    if (sw_gc_current_phase(gc) != SW_GC_IDLE) (void)gc_finish(gc);
    wipe();
    collect();
    CHECK(gc_objects(gc) < 1000);
    end();
}

/* A thread in a blocking region has its registers and its stack as they were. */
static uint32_t blocked, may_go;

static NOINLINE void *block(void *arg) {
    wide_node *list = NULL;
    for (uint64_t i = 0; i < 100; i++) list = make(list, i);
    CHECK_EQ(sw_gc_block(gc), SW_OK);
    __atomic_store_n(&blocked, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&may_go, __ATOMIC_ACQUIRE) == 0) wipe();
    CHECK_EQ(sw_gc_unblock(gc), SW_OK);
    check_list(list, 100);
    return arg;
}

static void test_blocked(void) {
    pthread_t thread;
    begin();
    blocked = may_go = 0;
    CHECK_EQ(pthread_create(&thread, NULL, block, NULL), 0);
    while (__atomic_load_n(&blocked, __ATOMIC_ACQUIRE) == 0) {
    }
    for (int i = 0; i < (UNDER_TSAN ? 3 : 20); i++) collect();
    __atomic_store_n(&may_go, 1, __ATOMIC_RELEASE);
    gc_join_thread(gc, thread);
    end();
}

static void *allocate(void *arg) {
    (void)sw_gc_new(gc, type, 1);
    return arg;
}

static void test_option(void) {
    gc = gc_begin(0);
    type = gc_type(gc, sizeof(wide_node), 1);
    CHECK_EQ(sw_gc_set_roots(gc, SW_GC_SIGNALS), SW_INVALID);
    CHECK_EQ(sw_gc_set_roots(gc, 4), SW_INVALID);
    /* The library is part of this program. */
    CHECK_EQ(sw_gc_set_roots(gc, SW_GC_CONSERVATIVE | SW_GC_SIGNALS), SW_UNSUPPORTED);
    CHECK_EQ(sw_gc_set_roots(gc, 0), SW_OK);
    CHECK_EQ(sw_gc_set_roots(gc, SW_GC_CONSERVATIVE), SW_OK);
    CHECK_EQ(sw_gc_set_roots(gc, SW_GC_CONSERVATIVE), SW_OK);
    CHECK_EQ(gc->joined, 1);
    CHECK_EQ(sw_gc_set_roots(gc, 0), SW_STATE);
    CHECK_EQ(sw_gc_join(gc, "main"), SW_OK); /* gives it a name */
    CHECK_EQ(sw_gc_join(gc, "main"), SW_STATE);
    CHECK_EQ(sw_gc_leave(gc), SW_OK);
    CHECK_EQ(sw_gc_set_roots(gc, 0), SW_OK);
    (void)in_thread(allocate, NULL);
    CHECK_EQ(gc->joined, 0);
    end();
}

int main(void) {
    test_option();
    test_first_list();
    test_places();
    test_changing_modules();
    test_registers();
    test_depth();
    test_alternate_stack();
    test_unknown_stack();
    test_unreadable_page();
    test_false_retention();
    test_threads(false);
    test_threads(true);
    test_blocked();
    return check_result();
}
