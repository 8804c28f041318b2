/* SPDX-License-Identifier: Apache-2.0 */
/* A model of concurrent marking (docs/design/gc.md), all of whose states are visited: two objects
 * with a pointer each, a root, two threads that read, write, allocate, join and leave, and one
 * or two that mark. The steps between which the others may run are those of the code: a write
 * reads the phase, keeps the old value, and stores the new one; a marker reads an object's
 * pointer, marks the target in one atomic instruction, and shares the objects of its own stack.
 *
 * One marker is searched with two threads, and two with one thread; SPANWISE_GC_MODEL=1 in the
 * environment also searches two with two.
 *
 * After each cycle
 *   every object that a thread or the root can reach lives;
 *   every object that was unreachable when the cycle began, and was allocated before, is freed.
 * Each fault that can be planted must violate one of the two. */
#include <stdbool.h>
#include <stdint.h>

#include "check.h"

enum { OBJECTS = 2, THREADS = 2, MARKERS = 2, ALL = 3, NONE = 3 }; /* NONE: NULL */
enum { ALL_IDLE = NONE | NONE << 2 }; /* no marker has found an object */

typedef enum { AT_SAFEPOINT, KEEPS, STORES } place;

/* Sets of objects are masks; fields of several objects, threads or markers have two bits for each. */
typedef struct state {
    uint32_t fields, root, alive;
    uint32_t held; /* the threads' local variables */
    uint32_t joined, marks, grey, inbox, kept;
    uint32_t marking;
    uint32_t found;              /* the objects that the markers are about to mark */
    uint32_t own;                /* the markers' stacks */
    uint32_t loaded, has_loaded; /* with TEARS_MARKS: the marks that a marker has read */
    uint32_t at;                 /* the threads' places */
    uint32_t writes_to, written;
    uint32_t dead; /* unreachable when the cycle began */
} state;

static const uint32_t widths[] = {4, 2, 2, 4, 2, 2, 2, 2, 4, 1, 4, 4, 4, 2, 4, 4, 4, 2};
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
    ENDS_WHILE_ANOTHER_MARKS,
    TEARS_MARKS,
    FAULTS
} fault;

static uint32_t threads, markers; /* of this search */
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

/* The same for a packed field of two sets. */
static uint32_t renamed_sets(const uint32_t *order, uint32_t sets) {
    return renamed_set(order, sets & 3) | renamed_set(order, sets >> 2) << 2;
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
    for (uint32_t i = 0; i < MARKERS; i++) made.found = put(made.found, i, order[get(s.found, i)]);
    made.own = renamed_sets(order, s.own);
    made.loaded = renamed_sets(order, s.loaded);
    made.alive = renamed_set(order, s.alive);
    made.marks = renamed_set(order, s.marks);
    made.grey = renamed_set(order, s.grey);
    made.inbox = renamed_set(order, s.inbox);
    made.dead = renamed_set(order, s.dead);
    made.kept = renamed_sets(order, s.kept);
    return pack(&made);
}

static uint32_t swapped(uint32_t packed) { return packed >> 2 | (packed & 3) << 2; }

/* The markers differ by their numbers only, too. */
static state with_markers_swapped(state s) {
    s.found = swapped(s.found);
    s.own = swapped(s.own);
    s.loaded = swapped(s.loaded);
    s.has_loaded = s.has_loaded >> 1 | (s.has_loaded & 1) << 1;
    return s;
}

static uint64_t word_of(state s) {
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < sizeof orders / sizeof *orders * markers; i++) {
        uint64_t word =
            renamed(orders[i / markers], i % markers == 0 ? s : with_markers_swapped(s));
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
    for (uint32_t i = 0; i < threads; i++) roots |= bit(get(s.held, i));
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
    s.marks = (~s.alive & ALL) | roots; /* free slots count as marked */
    if (planted == ALLOCATES_WHITE) s.marks = roots;
    s.grey = roots;
    s.inbox = s.kept = 0;
    visit(s);
}

static bool marks_nothing(state s, uint32_t m) {
    return get(s.own, m) == 0 && get(s.found, m) == NONE;
}

static bool markers_are_done(state s) {
    uint32_t idle = 0;
    for (uint32_t m = 0; m < markers; m++) idle += marks_nothing(s, m);
    return idle == markers || (planted == ENDS_WHILE_ANOTHER_MARKS && idle != 0);
}

static void end_marking(state s) {
    if (!s.marking || s.grey != 0 || s.inbox != 0 || !markers_are_done(s) || !is_stopped(s)) return;
    uint32_t kept = get(s.kept, 0) | get(s.kept, 1);
    if (planted != GATHERS_NOTHING) s.inbox |= kept;
    s.kept = 0;
    if ((s.inbox & ~s.marks) != 0) {
        visit(s); /* the world runs again, and marking continues */
        return;
    }
    uint32_t lives = s.alive & (planted == NEVER_FREES ? ALL : s.marks);
    if ((reach(s, roots_of(s)) & ~lives) != 0) violated = true;
    if ((lives & s.dead) != 0) violated = true;
    for (uint32_t i = 0; i < OBJECTS; i++)
        if ((lives >> i & 1) == 0) s.fields = put(s.fields, i, NONE);
    s.alive = lives;
    s.marking = s.marks = s.grey = s.inbox = s.dead = s.own = s.loaded = s.has_loaded = 0;
    s.found = ALL_IDLE;
    visit(s);
}

/* Marks the object that a marker has found; if it was not marked, it goes to the marker's stack.
 * With TEARS_MARKS the marker reads the marks in one step, and writes them in the next. */
static void mark(state s, uint32_t m) {
    uint32_t object = bit(get(s.found, m));
    bool has_loaded = (s.has_loaded >> m & 1) != 0;
    if (planted == TEARS_MARKS && !has_loaded) {
        s.loaded = put(s.loaded, m, s.marks);
        s.has_loaded |= 1u << m;
        visit(s);
        return;
    }
    uint32_t marks = has_loaded ? get(s.loaded, m) : s.marks;
    s.own |= (object & ~marks) << 2 * m;
    s.marks = marks | object;
    s.loaded = put(s.loaded, m, 0);
    s.has_loaded &= ~(1u << m);
    s.found = put(s.found, m, NONE);
    visit(s);
}

/* One marker alone marks in the same step, which saves states. */
static void find(state s, uint32_t m, uint32_t object) {
    s.found = put(s.found, m, object);
    if (markers == 1)
        mark(s, m);
    else
        visit(s);
}

/* Reads the pointer of an object of its own stack, or of a shared one. */
static void scan(state s, uint32_t m, uint32_t object) {
    if (((get(s.own, m) | s.grey) >> object & 1) == 0) return;
    if ((get(s.own, m) >> object & 1) != 0)
        s.own &= ~(1u << object << 2 * m);
    else
        s.grey &= ~(1u << object);
    find(s, m, get(s.fields, object));
}

static void share(state s, uint32_t m) {
    s.grey |= get(s.own, m);
    s.own = put(s.own, m, 0);
    visit(s);
}

static void marker(state s, uint32_t m) {
    if (get(s.found, m) != NONE) {
        mark(s, m);
        return;
    }
    if (get(s.own, m) != 0) share(s, m);
    for (uint32_t i = 0; i < OBJECTS; i++) {
        scan(s, m, i);
        if ((s.inbox >> i & 1) == 0) continue;
        state next = s;
        next.inbox &= ~(1u << i);
        find(next, m, i);
    }
}

static void collector(state s) {
    begin_cycle(s);
    end_marking(s);
    for (uint32_t m = 0; m < markers && s.marking; m++) marker(s, m);
}

/* --- threads ---------------------------------------------------------------------------------- */

static state keep(state s, uint32_t thread, uint32_t object) {
    if (planted != KEEPS_NOTHING) s.kept |= bit(object) << 2 * thread;
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
    uint32_t kept = get(s.kept, thread);
    if (planted != LEAVES_WITHOUT_BUFFER || !leaves) s.inbox |= s.marking ? kept : 0;
    s.kept = put(s.kept, thread, 0);
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
    if (get(s.kept, thread) != 0) hand_over(s, thread, false);
    if (thread == 1) hand_over(s, thread, true);
}

/* --- the search ------------------------------------------------------------------------------- */

static void search(fault of, uint32_t thread_count, uint32_t marker_count) {
    planted = of;
    threads = thread_count;
    markers = marker_count;
    violated = false;
    queued = 0;
    memset(table, 0, sizeof *table << table_log2);
    visit((state){.fields = 15, .root = NONE, .held = 15, .joined = 1, .found = ALL_IDLE});
    for (uint64_t i = 0; i < queued && !violated; i++) {
        state s = unpack(queue[i] - 1);
        collector(s);
        for (uint32_t thread = 0; thread < threads; thread++) thread_steps(s, thread);
    }
    printf("fault %d, threads %u, markers %u: %llu states, %s\n", of, threads, markers,
           (unsigned long long)queued, violated ? "violated" : "holds");
    CHECK_EQ(violated, of != NO_FAULT);
}

int main(void) {
    bool whole = getenv("SPANWISE_GC_MODEL") != NULL;
    table_log2 = whole ? 26 : 22;
    table = malloc(sizeof *table << table_log2);
    queue = malloc(sizeof *queue << table_log2);
    CHECK(table != NULL && queue != NULL);
    /* The model has no memory errors to find, and its states are the same in each build. */
    if (!SANITIZED) {
        search(NO_FAULT, 2, 1);
        search(NO_FAULT, 1, 2);
        if (whole) search(NO_FAULT, 2, 2);
    }
    for (int of = NO_FAULT + 1; of < FAULTS; of++) search((fault)of, 2, 2);
    free(table);
    free(queue);
    return check_result();
}
