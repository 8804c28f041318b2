/* SPDX-License-Identifier: Apache-2.0 */
/* What a memory checker sees of arenas. Under AddressSanitizer: in every mode a child that reads an object after
 * the arena's free, reset or release, or a byte behind an object, dies of it. Elsewhere the same lives run
 * to their end, and their objects are readable. With the argument `misuse` all of these uses happen in one
 * process, with `use` none of them: so valgrind runs it (tests/install/arena_valgrind.sh). */
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "os/os.h"
#include "spanwise/spanwise.h"

typedef enum end { FREE, RESET, RELEASE, BEHIND, NOTHING, ENDS } end;

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
    sink = object[how == BEHIND ? 40 : 8];
    if (how == NOTHING) sink = (char)(plain[99] + before[39]);
    if (how != FREE && sw_arena_free(arena) != SW_OK) _exit(3);
}

/* Whether a child that lives so ends as it should. */
static int child_status(uint32_t mode, uint32_t locked, end how) {
    pid_t child = fork();
    if (child == 0) {
        if (sw_os_is_watched()) close(2); /* the checker's report */
        live(mode, locked, how);
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
        return 0;
    }
    for (uint32_t mode = SW_ARENA_OFF; mode <= SW_ARENA_FORCE; mode++) {
        for (uint32_t locked = 0; locked < 2; locked++) {
            CHECK_EQ(child_status(mode, locked, NOTHING), 0);
            for (end how = FREE; sw_os_is_watched() && how < NOTHING; how++)
                CHECK(child_status(mode, locked, how) != 0);
        }
    }
    return check_result();
}
