/* SPDX-License-Identifier: Apache-2.0 */
/* Serves requests that it makes up: parses headers and bodies, finds sessions in a tree, caches
 * answers and logs lines. 44 calls of malloc, realloc and free per request; the seed is fixed.
 *
 * Usage: server REQUESTS. Prints the number of sessions. Needs only libc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 4096, LINES = 20000, LONGEST = 65000 };

struct header {
    char *name, *value;
    struct header *next;
};
struct request {
    char *path, *body;
    struct header *headers;
};
struct session {
    unsigned key;
    char *user;
    void *state;
    struct session *left, *right;
};
struct answer {
    char *key, *text;
    struct answer *next;
};

static struct answer *cache[BUCKETS];
static struct session *sessions;
static unsigned session_count;
static char *lines[LINES];

static unsigned below(unsigned end) {
    static unsigned seed = 7;
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % end;
}

static void *checked(void *block) {
    if (block == NULL) {
        fputs("server: out of memory\n", stderr);
        exit(1);
    }
    return block;
}

static char *text_of(size_t length) {
    char *text = checked(malloc(length + 1));
    memset(text, ' ', length);
    text[length] = '\0';
    return text;
}

static struct header *parse_header(struct header *next) {
    struct header *header = checked(calloc(1, sizeof *header));
    header->name = text_of(4 + below(20));
    header->value = text_of(1 + below(120));
    header->next = next;
    return header;
}

static char *parse_body(void) {
    size_t room = 64;
    char *body = checked(malloc(room));
    for (size_t length = 0, end = below(4000); length < end; length += 100)
        if (length + 100 > room) body = checked(realloc(body, room *= 2));
    return body;
}

static struct request *parse(void) {
    struct request *request = checked(malloc(sizeof *request));
    request->path = text_of(10 + below(60));
    request->headers = NULL;
    for (unsigned left = 3 + below(6); left > 0; left--)
        request->headers = parse_header(request->headers);
    request->body = below(4) ? NULL : parse_body();
    return request;
}

static void request_free(struct request *request) {
    for (struct header *header = request->headers, *next; header != NULL; header = next) {
        next = header->next;
        free(header->name);
        free(header->value);
        free(header);
    }
    free(request->path);
    free(request->body);
    free(request);
}

static struct session *find_session(struct session **at, unsigned key) {
    struct session *session = *at;
    if (session == NULL) {
        session = *at = checked(calloc(1, sizeof *session));
        session->key = key;
        session->user = text_of(8 + below(24));
        session->state = checked(malloc(200 + below(300)));
        session_count++;
    }
    if (session->key == key) return session;
    return find_session(key < session->key ? &session->left : &session->right, key);
}

static void cache_answer(void) {
    struct answer **bucket = &cache[below(BUCKETS)], *answer = checked(malloc(sizeof *answer));
    answer->key = text_of(16 + below(16));
    answer->text = text_of(below(20) ? 300 + below(3000) : below(LONGEST));
    answer->next = *bucket;
    *bucket = answer;
}

static void evict_answer(void) {
    struct answer **bucket = &cache[below(BUCKETS)], *answer = *bucket;
    if (answer == NULL) return;
    *bucket = answer->next;
    free(answer->key);
    free(answer->text);
    free(answer);
}

static void serve(unsigned number) {
    struct request *request = parse();
    (void)find_session(&sessions, below(200000) * 2654435761u);
    if (below(3) == 0) cache_answer();
    if (number > 8000 && below(3) == 0) evict_answer();
    char **line = &lines[number % LINES];
    free(*line);
    *line = text_of(40 + below(100));
    request_free(request);
}

int main(int count, char **words) {
    unsigned requests = count == 2 ? (unsigned)strtoul(words[1], NULL, 10) : 0;
    for (unsigned number = 0; number < requests; number++) serve(number);
    printf("%u sessions\n", session_count);
    return count != 2;
}
