/* SPDX-License-Identifier: Apache-2.0 */
/* Errors that a memory checker finds in arenas and slabs. Under AddressSanitizer a child process
 * that reads an object after the arena's free, reset or release, a byte past an object, or a slot
 * after its free, must die in every mode; elsewhere it runs to its end. With the argument `misuse`
 * all of these uses happen in one process, with `use` none: valgrind runs both
 * (tests/install/arena_valgrind.sh). */
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "os/os.h"
#include "spanwise/spanwise.h"

typedef enum end { FREE, RESET, RELEASE, PAST, NOTHING } end;

static volatile char sink;

static void live(uint32_t mode, uint32_t locked, end how) {
    sw_arena_options options;
    sw_arena *arena = NULL;
    sw_arena_savepoint point = {0};
    sw_arena_options_init(&options);
    options.mode = mode;
    options.locked = locked;
    if (sw_arena_create(&options, &arena) != SW_OK) _exit(3);
    volatile char *before = sw_arena_new(arena, 40, 8, SW_ZERO);
    if (sw_arena_mark(arena, &point) != SW_OK) _exit(3);
    volatile char *object = sw_arena_new(arena, 40, 8, SW_SCAN);
    volatile char *plain = sw_arena_alloc(arena, 100, 1, 0);
    object[39] = plain[99] = before[39] = 1;
    if (how == FREE && sw_arena_free(arena) != SW_OK) _exit(3);
    if (how == RESET && sw_arena_reset(arena) != SW_OK) _exit(3);
    if (how == RELEASE && sw_arena_release(arena, point) != SW_OK) _exit(3);
    sink = object[how == PAST ? 40 : 8];
    if (how == NOTHING) sink = (char)(plain[99] + before[39]);
    if (how != FREE && sw_arena_free(arena) != SW_OK) _exit(3);
}

/* Of slabs; how: FREE, a slot is read after its free, or NOTHING. */
static void live_in_slabs(uint32_t mode, uint32_t locked, end how) {
    sw_slabs_options options;
    sw_slabs *slabs = NULL;
    sw_slabs_options_init(&options);
    options.capacity = 100;
    options.locked = locked;
    if (mode != 0 || sw_slabs_create(&options, &slabs) != SW_OK) _exit(3);
    volatile char *slot = sw_slabs_alloc(slabs, 256, 0), *other = sw_slabs_alloc(slabs, 1, 0);
    slot[255] = other[0] = 1;
    if (how == FREE && sw_slabs_free(slabs, (void *)(uintptr_t)slot) != SW_OK) _exit(3);
    sink = (char)(slot[255] + other[0]);
    sw_slabs_destroy(slabs);
}

/* How a child ends that lives so. */
static int child_status(void (*life)(uint32_t, uint32_t, end), uint32_t mode, uint32_t locked,
                        end how) {
    pid_t child = fork();
    if (child == 0) {
        if (sw_os_is_watched()) close(2); /* the checker's report */
        life(mode, locked, how);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

int main(int argc, char **argv) {
    if (argc == 2) {
        bool misuses = strcmp(argv[1], "misuse") == 0;
        for (uint32_t life = 0; life < 3 * 2 * NOTHING; life++)
            live(SW_ARENA_OFF + life % 3, life / 3 % 2, misuses ? (end)(life / 6) : NOTHING);
        for (uint32_t locked = 0; locked < 2; locked++)
            live_in_slabs(0, locked, misuses ? FREE : NOTHING);
        return 0;
    }
    for (uint32_t mode = SW_ARENA_OFF; mode <= SW_ARENA_FORCE; mode++) {
        for (uint32_t locked = 0; locked < 2; locked++) {
            CHECK_EQ(child_status(live, mode, locked, NOTHING), 0);
            for (end how = FREE; sw_os_is_watched() && how < NOTHING; how++)
                CHECK(child_status(live, mode, locked, how) != 0);
        }
    }
    for (uint32_t locked = 0; locked < 2; locked++) {
        CHECK_EQ(child_status(live_in_slabs, 0, locked, NOTHING), 0);
        CHECK(!sw_os_is_watched() || child_status(live_in_slabs, 0, locked, FREE) != 0);
    }
    return check_result();
}
