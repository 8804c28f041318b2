/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that build data structures: text, hash maps, matrices, growing arrays. */
#include <string.h>

#include "patterns.h"

static uint64_t hash_of(const void *bytes, size_t count) {
    uint64_t hash = 14695981039346656037U; /* FNV-1a */
    for (size_t i = 0; i < count; i++) hash = (hash ^ ((const uint8_t *)bytes)[i]) * 1099511628211U;
    return hash;
}

/* --- text ------------------------------------------------------------------------------------- */

/* A string that grows by doubling, as string classes do. */
struct text {
    char *bytes;
    size_t length, capacity;
};

static void text_append(struct text *text, const char *bytes, size_t length) {
    size_t needed = text->length + length + 1;
    if (needed > text->capacity) {
        size_t capacity = 2 * text->capacity > needed ? 2 * text->capacity : needed;
        text->bytes = pattern_must(realloc(text->bytes, capacity));
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

static char *word_new(struct pattern_random *random, uint32_t longest) {
    uint32_t length = pattern_between(random, 1, longest);
    char *word = pattern_must(malloc(length + 1));
    for (uint32_t i = 0; i < length; i++) word[i] = (char)('a' + pattern_below(random, 26));
    word[length] = '\0';
    return word;
}

enum { TEXTS = 2000, LINE_WORDS = 12, LONGEST_WORD = 14 };

/* Build a line of words, each of which is an object, and hash and free the words. */
static uint64_t build_line(struct pattern_random *random, struct text *line) {
    char *copies[LINE_WORDS];
    uint64_t hash = 0;
    uint32_t words = pattern_between(random, 3, LINE_WORDS);
    for (uint32_t i = 0; i < words; i++) {
        char *word = word_new(random, LONGEST_WORD);
        text_append(line, word, strlen(word));
        text_append(line, " ", 1);
        copies[i] = word;
    }
    for (uint32_t i = 0; i < words; i++) {
        hash += hash_of(copies[i], strlen(copies[i]));
        free(copies[i]);
    }
    return hash;
}

static void strings(uint64_t percent, struct pattern_result *result) {
    static struct text texts[TEXTS];
    struct pattern_random random = {19};
    uint64_t times = pattern_share(1200000, percent);
    *result = (struct pattern_result){times, 0};
    for (uint64_t i = 0; i < times; i++) {
        struct text *text = &texts[pattern_below(&random, TEXTS)];
        free(text->bytes);
        *text = (struct text){NULL, 0, 0};
        result->check += build_line(&random, text);
    }
    for (uint32_t i = 0; i < TEXTS; i++) {
        result->check += texts[i].length;
        free(texts[i].bytes);
    }
}

/* --- a hash map with chains ------------------------------------------------------------------- */

struct entry {
    struct entry *next;
    char *key;
    uint64_t hash, uses;
};

struct map {
    struct entry **buckets;
    uint64_t count, size; /* size is a power of two */
};

static void map_grow(struct map *map) {
    uint64_t size = map->size == 0 ? 16 : 2 * map->size;
    struct entry **buckets = pattern_must(calloc(size, sizeof(struct entry *)));
    for (uint64_t i = 0; i < map->size; i++) {
        for (struct entry *entry = map->buckets[i], *next; entry != NULL; entry = next) {
            next = entry->next;
            entry->next = buckets[entry->hash & (size - 1)];
            buckets[entry->hash & (size - 1)] = entry;
        }
    }
    free(map->buckets);
    map->buckets = buckets;
    map->size = size;
}

static struct entry **map_find(struct map *map, const char *key, uint64_t hash) {
    struct entry **link = &map->buckets[hash & (map->size - 1)];
    while (*link != NULL && ((*link)->hash != hash || strcmp((*link)->key, key) != 0)) {
        link = &(*link)->next;
    }
    return link;
}

/* Take ownership of the key. The first use of a key adds its entry, and the third removes it. */
static uint64_t map_toggle(struct map *map, char *key) {
    if (map->count >= map->size) map_grow(map);
    uint64_t hash = hash_of(key, strlen(key));
    struct entry **link = map_find(map, key, hash), *entry = *link;
    if (entry == NULL) {
        entry = pattern_must(malloc(sizeof *entry));
        *entry = (struct entry){NULL, key, hash, 1};
        *link = entry;
        map->count++;
        return 0;
    }
    free(key);
    if (++entry->uses < 3) return 1;
    *link = entry->next;
    free(entry->key);
    free(entry);
    map->count--;
    return 2;
}

static void map_drop(struct map *map) {
    for (uint64_t i = 0; i < map->size; i++) {
        for (struct entry *entry = map->buckets[i], *next; entry != NULL; entry = next) {
            next = entry->next;
            free(entry->key);
            free(entry);
        }
    }
    free(map->buckets);
}

static void hash_map(uint64_t percent, struct pattern_result *result) {
    struct map map = {NULL, 0, 0};
    struct pattern_random random = {23};
    uint64_t times = pattern_share(3000000, percent);
    *result = (struct pattern_result){times, 0};
    for (uint64_t i = 0; i < times; i++) {
        char *key = pattern_must(malloc(24));
        uint32_t number = pattern_below(&random, 100000);
        uint32_t length = 0;
        for (uint32_t left = number; left != 0 || length == 0; left /= 10) {
            key[length++] = (char)('0' + left % 10);
        }
        key[length] = '\0';
        result->check += map_toggle(&map, key);
    }
    result->check += map.count;
    map_drop(&map);
}

/* --- matrices, one object per row ------------------------------------------------------------- */

enum { LEAST_SIDE = 20, MOST_SIDE = 120, MATRICES = 8 };

struct matrix {
    uint32_t side;
    double **row;
};

static struct matrix matrix_new(uint32_t side) {
    struct matrix made = {side, pattern_must(malloc(side * sizeof(double *)))};
    for (uint32_t i = 0; i < side; i++) made.row[i] = pattern_must(calloc(side, sizeof(double)));
    return made;
}

static void matrix_drop(struct matrix *matrix) {
    for (uint32_t i = 0; i < matrix->side; i++) free(matrix->row[i]);
    free(matrix->row);
}

/* Return half the sum of a matrix and its transpose, plus 1. */
static struct matrix matrix_fold(const struct matrix *from) {
    struct matrix made = matrix_new(from->side);
    for (uint32_t i = 0; i < from->side; i++) {
        for (uint32_t k = 0; k < from->side; k++) {
            made.row[i][k] = 0.5 * (from->row[i][k] + from->row[k][i]) + 1;
        }
    }
    return made;
}

static void matrices(uint64_t percent, struct pattern_result *result) {
    struct matrix held[MATRICES];
    struct pattern_random random = {29};
    uint64_t times = pattern_share(60000, percent);
    for (uint32_t i = 0; i < MATRICES; i++) held[i] = matrix_new(LEAST_SIDE);
    *result = (struct pattern_result){0, 0};
    for (uint64_t i = 0; i < times; i++) {
        struct matrix *place = &held[pattern_below(&random, MATRICES)];
        struct matrix fresh = matrix_new(pattern_between(&random, LEAST_SIDE, MOST_SIDE));
        fresh.row[0][0] = place->row[0][0];
        matrix_drop(place);
        *place = matrix_fold(&fresh);
        result->ops += 2 * fresh.side;
        matrix_drop(&fresh);
        result->check += (uint64_t)place->row[0][0] & 0xff;
    }
    for (uint32_t i = 0; i < MATRICES; i++) matrix_drop(&held[i]);
}

/* --- arrays that grow ------------------------------------------------------------------------- */

enum { ARRAYS = 400, MOST_NUMBERS = 3000 };

struct array {
    uint64_t *number;
    uint32_t count, capacity;
};

static void array_push(struct array *array, uint64_t number) {
    if (array->count == array->capacity) {
        array->capacity = array->capacity == 0 ? 4 : array->capacity + array->capacity / 2;
        array->number =
            pattern_must(realloc(array->number, array->capacity * sizeof *array->number));
    }
    array->number[array->count++] = number;
}

static void arrays(uint64_t percent, struct pattern_result *result) {
    static struct array held[ARRAYS];
    struct pattern_random random = {31};
    uint64_t times = pattern_share(12000000, percent);
    *result = (struct pattern_result){times, 0};
    for (uint64_t i = 0; i < times; i++) {
        struct array *array = &held[pattern_below(&random, ARRAYS)];
        uint32_t more = pattern_between(&random, 1, 32);
        for (uint32_t k = 0; k < more; k++) array_push(array, k);
        if (array->count < MOST_NUMBERS && pattern_below(&random, 100) != 0) continue;
        result->check += array->number[array->count - 1] + array->count;
        free(array->number);
        *array = (struct array){NULL, 0, 0};
    }
    for (uint32_t i = 0; i < ARRAYS; i++) free(held[i].number);
}

const struct pattern_program pattern_building[] = {
    {"strings", strings}, {"hash-map", hash_map}, {"matrices", matrices},
    {"arrays", arrays},   {NULL, NULL},
};
