/* SPDX-License-Identifier: Apache-2.0 */
/* A model of concurrent marking (docs/design/gc.md), all of whose states are visited: two objects
 * with a pointer each, a root, two threads that read, write, allocate, join and leave, and a thread
 * that marks. The steps between which the others may run are those of the code: a write reads the
 * phase, keeps the old value, and stores the new one; the marker takes an object, reads its pointer,
 * and marks the target.
 *
 * After each cycle
 *   every object that a thread or the root can reach lives;
 *   every object that was unreachable when the cycle began, and was allocated before, is freed.
 * Each fault that can be planted must violate one of the two. */
#include <stdbool.h>
#include <stdint.h>

#include "check.h"

enum { OBJECTS = 2, THREADS = 2, NONE = 3 }; /* NONE: NULL */

typedef enum { AT_SAFEPOINT, KEEPS, STORES } place;

/* Sets of objects are masks; `fields`, `held`, `at`, `writes_to` and `written` have two bits for each
 * object or thread, `kept` three for each thread. */
typedef struct state {
    uint32_t fields, root, alive;
    uint32_t held; /* the threads' local variables */
    uint32_t joined, marks, grey, inbox, kept;
    uint32_t marking;
    uint32_t reads; /* the object that the marker has taken */
    uint32_t at;    /* the threads' places */
    uint32_t writes_to, written;
    uint32_t dead; /* unreachable when the cycle began */
} state;

static const uint32_t widths[] = {6, 2, 3, 4, 2, 3, 3, 3, 6, 1, 2, 4, 4, 4, 3};
enum { FIELDS = sizeof widths / sizeof *widths };
_Static_assert(sizeof(state) == FIELDS * sizeof(uint32_t), "each field has a width");

static uint64_t pack(const state *s) {
    const uint32_t *fields = (const uint32_t *)s;
    uint64_t word = 0;
    for (size_t i = 0; i < FIELDS; i++) word = word << widths[i] | fields[i];
    return word;
}

static state unpack(uint64_t word) {
    state s;
    uint32_t *fields = (uint32_t *)&s;
    for (size_t i = FIELDS; i-- > 0; word >>= widths[i])
        fields[i] = (uint32_t)word & ((1u << widths[i]) - 1);
    return s;
}

typedef enum fault {
    NO_FAULT,
    KEEPS_NOTHING,
    STORES_FIRST,
    ALLOCATES_WHITE,
    GATHERS_NOTHING,
    LEAVES_WITHOUT_BUFFER,
    BEGINS_DURING_WRITES,
    FORGETS_A_ROOT,
    NEVER_FREES,
    FAULTS
} fault;

static fault planted;
static bool violated;

static uint32_t get(uint32_t packed, uint32_t i) { return packed >> 2 * i & 3; }
static uint32_t put(uint32_t packed, uint32_t i, uint32_t value) {
    return (packed & ~(3u << 2 * i)) | value << 2 * i;
}
static uint32_t bit(uint32_t object) { return object == NONE ? 0 : 1u << object; }

/* --- visited states --------------------------------------------------------------------------- */

static uint64_t *table, *queue;
static uint64_t table_log2, queued;

/* Objects differ by their numbers only, so of the states that differ by the order of the objects
 * one is visited. */
static const uint32_t orders[][4] = {{0, 1, 2, NONE}, {1, 0, 2, NONE}};

static uint32_t renamed_set(const uint32_t *order, uint32_t set) {
    uint32_t made = 0;
    for (uint32_t i = 0; i < OBJECTS; i++) made |= (set >> i & 1) << order[i];
    return made;
}

static uint64_t renamed(const uint32_t *order, state s) {
    state made = s;
    for (uint32_t i = 0; i < OBJECTS; i++)
        made.fields = put(made.fields, order[i], order[get(s.fields, i)]);
    for (uint32_t i = 0; i < THREADS; i++) {
        made.held = put(made.held, i, order[get(s.held, i)]);
        if (get(s.at, i) == AT_SAFEPOINT) continue;
        made.writes_to = put(made.writes_to, i, order[get(s.writes_to, i)]);
        made.written = put(made.written, i, order[get(s.written, i)]);
    }
    made.root = order[s.root];
    made.reads = order[s.reads];
    made.alive = renamed_set(order, s.alive);
    made.marks = renamed_set(order, s.marks);
    made.grey = renamed_set(order, s.grey);
    made.inbox = renamed_set(order, s.inbox);
    made.dead = renamed_set(order, s.dead);
    made.kept = renamed_set(order, s.kept) | renamed_set(order, s.kept >> 3) << 3;
    return pack(&made);
}

static uint64_t word_of(state s) {
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        uint64_t word = renamed(orders[i], s);
        least = word < least ? word : least;
    }
    return least + 1; /* 0: empty */
}

static void visit(state s) {
    uint64_t word = word_of(s), i = word * 0x9E3779B97F4A7C15u >> (64 - table_log2);
    while (table[i] != 0 && table[i] != word) i = (i + 1) & ((1ull << table_log2) - 1);
    if (table[i] == word) return;
    table[i] = word;
    queue[queued++] = word;
    if (queued >= 3ull << (table_log2 - 2)) abort();
}

/* --- what objects are reached ----------------------------------------------------------------- */

static uint32_t roots_of(state s) {
    uint32_t roots = bit(s.root);
    for (uint32_t i = 0; i < THREADS; i++) roots |= bit(get(s.held, i));
    return roots;
}

static uint32_t reach(state s, uint32_t from) {
    for (uint32_t before = 0; before != from;) {
        before = from;
        for (uint32_t i = 0; i < OBJECTS; i++)
            if ((from >> i & 1) != 0) from |= bit(get(s.fields, i));
    }
    return from;
}

/* --- the collector ---------------------------------------------------------------------------- */

static bool is_stopped(state s) {
    return s.at == 0 || (planted == BEGINS_DURING_WRITES && !s.marking);
}

static void begin_cycle(state s) {
    if (s.marking || !is_stopped(s)) return;
    uint32_t roots = roots_of(s);
    s.marking = 1;
    s.dead = s.alive & ~reach(s, roots);
    if (planted == FORGETS_A_ROOT) roots &= ~bit(get(s.held, 1));
    s.marks = (~s.alive & 7) | roots; /* free slots count as marked */
    if (planted == ALLOCATES_WHITE) s.marks = roots;
    s.grey = roots;
    s.inbox = s.kept = 0;
    visit(s);
}

static state mark(state s, uint32_t found) {
    found &= ~s.marks;
    s.marks |= found;
    s.grey |= found;
    return s;
}

static void end_marking(state s) {
    if (!s.marking || s.grey != 0 || s.inbox != 0 || s.reads != NONE || !is_stopped(s)) return;
    uint32_t kept = (s.kept & 7) | (s.kept >> 3 & 7);
    if (planted != GATHERS_NOTHING) s.inbox |= kept;
    s.kept = 0;
    if ((s.inbox & ~s.marks) != 0) {
        visit(s); /* the world runs again, and marking continues */
        return;
    }
    uint32_t lives = s.alive & (planted == NEVER_FREES ? 7 : s.marks);
    if ((reach(s, roots_of(s)) & ~lives) != 0) violated = true;
    if ((lives & s.dead) != 0) violated = true;
    for (uint32_t i = 0; i < OBJECTS; i++)
        if ((lives >> i & 1) == 0) s.fields = put(s.fields, i, NONE);
    s.alive = lives;
    s.marking = s.marks = s.grey = s.inbox = s.dead = 0;
    visit(s);
}

static void marker(state s) {
    begin_cycle(s);
    end_marking(s);
    if (!s.marking) return;
    if (s.reads != NONE) {
        state next = mark(s, bit(get(s.fields, s.reads)));
        next.reads = NONE;
        visit(next);
        return;
    }
    if (s.inbox != 0) {
        state next = mark(s, s.inbox);
        next.inbox = 0;
        visit(next);
    }
    for (uint32_t i = 0; i < OBJECTS; i++) {
        if ((s.grey >> i & 1) == 0) continue;
        state next = s;
        next.grey &= ~(1u << i);
        next.reads = i;
        visit(next);
    }
}

/* --- threads ---------------------------------------------------------------------------------- */

static state keep(state s, uint32_t thread, uint32_t object) {
    if (planted != KEEPS_NOTHING) s.kept |= bit(object) << 3 * thread;
    return s;
}

static void continue_write(state s, uint32_t thread) {
    uint32_t to = get(s.writes_to, thread), value = get(s.written, thread);
    uint32_t old = get(s.fields, to);
    state next = s;
    switch ((place)get(s.at, thread)) {
    case KEEPS:
        if (planted == STORES_FIRST)
            next.fields = put(s.fields, to, value);
        else
            next = keep(s, thread, old);
        next.at = put(s.at, thread, STORES);
        break;
    case STORES:
        if (planted == STORES_FIRST && s.marking)
            next = keep(s, thread, old);
        else
            next.fields = put(s.fields, to, value);
        next.at = put(s.at, thread, AT_SAFEPOINT);
        next.writes_to = put(s.writes_to, thread, 0);
        next.written = put(s.written, thread, 0);
        break;
    default: abort();
    }
    visit(next);
}

/* The phase is read here; it changes only while all threads are at safepoints. */
static void begin_write(state s, uint32_t thread, uint32_t to, uint32_t value) {
    if (to == NONE) return;
    s.at = put(s.at, thread, s.marking ? KEEPS : STORES);
    s.writes_to = put(s.writes_to, thread, to);
    s.written = put(s.written, thread, value);
    visit(s);
}

static void set_variable(state s, uint32_t i, uint32_t object) {
    s.held = put(s.held, i, object);
    visit(s);
}

static void allocate(state s, uint32_t i) {
    for (uint32_t object = 0; object < OBJECTS; object++) {
        if ((s.alive >> object & 1) != 0) continue;
        s.alive |= 1u << object;
        s.fields = put(s.fields, object, NONE);
        set_variable(s, i, object);
        return;
    }
}

static void hand_over(state s, uint32_t thread, bool leaves) {
    uint32_t kept = s.kept >> 3 * thread & 7;
    if (planted != LEAVES_WITHOUT_BUFFER || !leaves) s.inbox |= s.marking ? kept : 0;
    s.kept &= ~(7u << 3 * thread);
    if (leaves) {
        s.joined &= ~(1u << thread);
        s.held = put(s.held, thread, NONE);
    }
    visit(s);
}

static void thread_steps(state s, uint32_t thread) {
    if ((s.joined >> thread & 1) == 0) {
        s.joined |= 1u << thread;
        visit(s);
        return;
    }
    if (get(s.at, thread) != AT_SAFEPOINT) {
        continue_write(s, thread);
        return;
    }
    uint32_t object = get(s.held, thread);
    allocate(s, thread);
    set_variable(s, thread, NONE);
    set_variable(s, thread, s.root);
    if (object != NONE) set_variable(s, thread, get(s.fields, object));
    state next = s;
    next.root = object;
    visit(next); /* a root needs no barrier */
    begin_write(s, thread, object, NONE);
    begin_write(s, thread, object, s.root);
    if ((s.kept >> 3 * thread & 7) != 0) hand_over(s, thread, false);
    if (thread == 1) hand_over(s, thread, true);
}

/* --- the search ------------------------------------------------------------------------------- */

static uint64_t search(fault of) {
    planted = of;
    violated = false;
    queued = 0;
    memset(table, 0, sizeof *table << table_log2);
    visit((state){.fields = 63, .root = NONE, .held = 15, .joined = 1, .reads = NONE});
    for (uint64_t i = 0; i < queued && !violated; i++) {
        state s = unpack(queue[i] - 1);
        marker(s);
        for (uint32_t thread = 0; thread < THREADS; thread++) thread_steps(s, thread);
    }
    return queued;
}

int main(void) {
    table_log2 = 22;
    table = malloc(sizeof *table << table_log2);
    queue = malloc(sizeof *queue << table_log2);
    CHECK(table != NULL && queue != NULL);
    /* The model has no memory errors to find, and its states are the same in each build. */
    for (int of = SANITIZED ? NO_FAULT + 1 : NO_FAULT; of < FAULTS; of++) {
        uint64_t states = search((fault)of);
        printf("fault %d: %llu states, %s\n", of, (unsigned long long)states,
               violated ? "violated" : "holds");
        CHECK_EQ(violated, of != NO_FAULT);
    }
    free(table);
    free(queue);
    return check_result();
}
