/* SPDX-License-Identifier: Apache-2.0 */
/* bench_patterns NAME [PERCENT] runs one allocation pattern and prints `ops N`, `check N` and other
 * figures of the program, one per line. Without arguments it lists the patterns. */
#include <string.h>

#include "patterns.h"

static const struct pattern_program *const lists[] = {
    pattern_replacing, pattern_bursting, pattern_crossing, pattern_measuring,
    pattern_building,  pattern_linking,  pattern_spawning};
enum { LISTS = sizeof lists / sizeof lists[0] };

static const struct pattern_program *find(const char *name) {
    for (size_t i = 0; i < LISTS; i++) {
        for (const struct pattern_program *program = lists[i]; program->name != NULL; program++) {
            if (strcmp(program->name, name) == 0) return program;
        }
    }
    return NULL;
}

static int list_names(void) {
    for (size_t i = 0; i < LISTS; i++) {
        for (const struct pattern_program *program = lists[i]; program->name != NULL; program++) {
            puts(program->name);
        }
    }
    return 0;
}

int main(int count, char **words) {
    if (count < 2) return list_names();
    const struct pattern_program *program = find(words[1]);
    uint64_t percent = count > 2 ? strtoull(words[2], NULL, 10) : 100;
    if (program == NULL || percent == 0) {
        fprintf(stderr, "bench_patterns: no program '%s', or a share of 0\n", words[1]);
        return 2;
    }
    struct pattern_result result = {0, 0};
    program->run(percent, &result);
    printf("ops %llu\ncheck %llu\n", (unsigned long long)result.ops,
           (unsigned long long)result.check);
    return 0;
}
