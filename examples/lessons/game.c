/* SPDX-License-Identifier: Apache-2.0 */
/* A game that spawns and drops NPCs frame by frame, on a collected heap (lesson.h). The NPCs in the
 * game, and the idle ones, are linked into lists, whose heads are the collector's roots. */
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include <spanwise/gc.h>
#include <spanwise/stats.h>

#include "lessons/lesson.h"

enum { LIFE_FRAMES_MAX = 256 };

typedef struct actor { /* an NPC of 88 bytes, and the link of an intrusive list */
    struct actor *next;
    char name[64];
    uint64_t id;
    double place[2];
} actor;
_Static_assert(sizeof(actor) == 96, "no larger than the block of an NPC without the link");

typedef struct element { /* of Go's container/list: 40 bytes */
    struct element *next, *previous;
    void *list;
    void *type;
    actor *value;
} element;
_Static_assert(sizeof(element) == 40, "Go's layout");

/* The roots of the collector. */
typedef struct roots {
    actor *leaving[LIFE_FRAMES_MAX + 1]; /* in the game, by the frame in which they leave */
    actor *primary;                      /* idle, in an intrusive pool */
    actor *victim;                       /* aged pool: idle since before the last collection */
    element *first, *last;               /* idle, in a list pool */
    actor *fresh;                        /* an NPC that nothing else refers to yet */
} roots;

typedef struct play {
    const sw_lesson_game *game;
    sw_gc *gc;
    uint32_t actor_type, element_type;
    uint64_t seed;
    uint64_t cycles; /* number of the last cycle that the aged pool has seen */
    uint32_t capped; /* idle NPCs of a capped pool, at most its capacity */
    bool is_out;
    pthread_mutex_t lock;
    roots roots;
    sw_lesson_score score;
} play;

/* xorshift64*, Vigna 2016. */
static uint64_t draw(play *play) {
    play->seed ^= play->seed >> 12;
    play->seed ^= play->seed << 25;
    play->seed ^= play->seed >> 27;
    return play->seed * UINT64_C(2685821657736338717) >> 32;
}

static void *make(play *play, uint32_t type) {
    void *object = sw_gc_new(play->gc, type, 1);
    if (object == NULL) {
        play->is_out = true;
        return NULL;
    }
    play->score.allocs++;
    play->score.allocated_bytes += sw_heap_usable_size(sw_gc_heap(play->gc), object);
    return object;
}

/* --- pools ------------------------------------------------------------------------------------ */

/* Write pointers into objects through the write barrier. */
static void push(play *play, actor **head, actor *one) {
    sw_gc_write(play->gc, &one->next, *head);
    *head = one;
}
static actor *pop(play *play, actor **head) {
    actor *one = *head;
    if (one == NULL) return NULL;
    *head = one->next;
    sw_gc_write(play->gc, &one->next, NULL);
    return one;
}

static actor *take_from_list(play *play) {
    element *one = play->roots.first;
    if (one == NULL) return NULL;
    play->roots.first = one->next;
    if (one->next == NULL) play->roots.last = NULL;
    return one->value;
}
static void put_into_list(play *play, actor *idle) {
    element *one = make(play, play->element_type);
    if (one == NULL) return;
    sw_gc_write(play->gc, &one->value, idle);
    if (play->roots.last == NULL)
        play->roots.first = one;
    else
        sw_gc_write(play->gc, &play->roots.last->next, one);
    play->roots.last = one;
}

/* Go's sync.Pool: at each collection the victims are dropped, and the other idle items become the
 * victims. Called when a frame begins. */
static void age(play *play) {
    if (play->game->policy != SW_LESSON_AGED_POOL) return;
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    if (sw_gc_last_cycle(play->gc, &cycle) != SW_OK || cycle.number == play->cycles) return;
    if (cycle.number > play->cycles + 1) play->roots.primary = NULL; /* two collections */
    play->cycles = cycle.number;
    play->roots.victim = play->roots.primary;
    play->roots.primary = NULL;
}

static actor *take_idle(play *play) {
    actor *one = NULL;
    switch (play->game->policy) {
    case SW_LESSON_LIST_POOL:
        (void)pthread_mutex_lock(&play->lock);
        one = take_from_list(play);
        (void)pthread_mutex_unlock(&play->lock);
        break;
    case SW_LESSON_CAPPED_POOL:
        one = pop(play, &play->roots.primary);
        play->capped -= one != NULL;
        break;
    case SW_LESSON_AGED_POOL:
        one = pop(play, &play->roots.primary);
        if (one == NULL) one = pop(play, &play->roots.victim);
        break;
    default: break;
    }
    return one;
}

static void put_idle(play *play, actor *one) {
    switch (play->game->policy) {
    case SW_LESSON_LIST_POOL:
        play->roots.fresh = one; /* allocating the element may collect */
        (void)pthread_mutex_lock(&play->lock);
        put_into_list(play, one);
        (void)pthread_mutex_unlock(&play->lock);
        play->roots.fresh = NULL;
        break;
    case SW_LESSON_CAPPED_POOL:
        if (play->capped == play->game->capacity) return;
        push(play, &play->roots.primary, one);
        play->capped++;
        break;
    case SW_LESSON_AGED_POOL: push(play, &play->roots.primary, one); break;
    default: break;
    }
}

static uint64_t idle_actors(const play *play) {
    uint64_t idle = 0;
    for (const actor *one = play->roots.primary; one != NULL; one = one->next) idle++;
    for (const actor *one = play->roots.victim; one != NULL; one = one->next) idle++;
    for (const element *one = play->roots.first; one != NULL; one = one->next) idle++;
    return idle;
}

/* --- frames ----------------------------------------------------------------------------------- */

/* Clear an idle NPC, or allocate a new one, which is clear. */
static actor *spawn(play *play) {
    actor *one = take_idle(play);
    if (one == NULL) return make(play, play->actor_type);
    memset(one->name, 0, sizeof *one - offsetof(actor, name));
    return one;
}

static void drop_leaving(play *play, uint32_t frame) {
    actor **leaving = &play->roots.leaving[frame % (LIFE_FRAMES_MAX + 1)];
    for (actor *one; (one = pop(play, leaving)) != NULL;) {
        play->score.checksum = play->score.checksum * 31 + one->id + (uint64_t)one->name[0];
        put_idle(play, one);
    }
}

static void play_frame(play *play, uint32_t frame) {
    const sw_lesson_game *game = play->game;
    age(play);
    drop_leaving(play, frame);
    bool is_wave = game->wave_frames != 0 && frame % game->wave_frames == 0;
    uint32_t wanted = is_wave ? game->wave : game->spawned;
    for (uint32_t i = 0; i < wanted && !play->is_out; i++) {
        actor *one = spawn(play);
        if (one == NULL) return;
        uint64_t leaves = frame + 1 + draw(play) % game->life_frames;
        one->id += ++play->score.spawned; /* an NPC that was not cleared changes the checksum */
        one->name[0] = (char)(one->name[0] + 'n');
        one->place[0] += (double)frame;
        push(play, &play->roots.leaving[leaves % (LIFE_FRAMES_MAX + 1)], one);
    }
}

/* --- the game --------------------------------------------------------------------------------- */

static sw_status begin(play *play) {
    static const uint64_t links = 1, five = 0x1F;
    const sw_gc_type actors = {.name = "NPC", .bytes = sizeof(actor), .pointers = &links};
    const sw_gc_type elements = {.name = "element", .bytes = sizeof(element), .pointers = &five};
    sw_heap_options options;
    uint32_t id;
    sw_heap_options_init(&options);
    options.table = play->game->table;
    sw_status status = sw_gc_create(&options, &play->gc);
    if (status == SW_OK) status = sw_gc_add_type(play->gc, &actors, &play->actor_type);
    if (status == SW_OK) status = sw_gc_add_type(play->gc, &elements, &play->element_type);
    if (status == SW_OK) status = sw_gc_add_roots(play->gc, &play->roots, sizeof play->roots, &id);
    sw_gc_pace pace = {.struct_bytes = sizeof pace,
                       .percent = play->game->percent,
                       .in_steps = play->game->in_steps};
    return status == SW_OK ? sw_gc_set_pace(play->gc, &pace) : status;
}

static bool is_valid(const sw_lesson_game *game) {
    return game->policy < SW_LESSON_POLICY_COUNT && game->frames > 0 && game->life_frames > 0 &&
           game->life_frames <= LIFE_FRAMES_MAX && game->in_steps <= 1;
}

sw_status sw_lesson_play(const sw_lesson_game *game, uint64_t *frame_ns, sw_lesson_score *out) {
    if (!is_valid(game)) return SW_INVALID;
    play play = {.game = game, .seed = game->seed + UINT64_C(1), .lock = PTHREAD_MUTEX_INITIALIZER};
    sw_status status = begin(&play);
    for (uint32_t frame = 0; status == SW_OK && frame < game->frames; frame++) {
        uint64_t start = sw_lesson_now_ns();
        play_frame(&play, frame);
        frame_ns[frame] = sw_lesson_now_ns() - start;
        if (play.is_out) status = SW_NOMEM;
    }
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    if (status == SW_OK) {
        if (sw_gc_last_cycle(play.gc, &cycle) == SW_OK) play.score.collections = cycle.number;
        play.score.held_bytes = sw_heap_held_bytes(sw_gc_heap(play.gc));
        age(&play);
        play.score.idle = idle_actors(&play);
        *out = play.score;
    }
    if (play.gc != NULL) (void)sw_gc_destroy(play.gc);
    (void)pthread_mutex_destroy(&play.lock);
    return status;
}
