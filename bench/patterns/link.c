/* SPDX-License-Identifier: Apache-2.0 */
/* Programs with linked nodes: a search tree, documents, an event queue. */
#include <string.h>

#include "patterns.h"

/* --- a treap ---------------------------------------------------------------------------------- */

struct node {
    struct node *left, *right;
    uint32_t key, priority;
    char *text; /* of 4 to 60 bytes */
};

static struct node *turn_right(struct node *node) {
    struct node *top = node->left;
    node->left = top->right;
    top->right = node;
    return top;
}

static struct node *turn_left(struct node *node) {
    struct node *top = node->right;
    node->right = top->left;
    top->left = node;
    return top;
}

static struct node *node_new(struct pattern_random *random, uint32_t key) {
    struct node *made = pattern_must(malloc(sizeof *made));
    uint32_t bytes = pattern_between(random, 4, 60);
    *made = (struct node){NULL, NULL, key, pattern_below(random, UINT32_MAX), NULL};
    made->text = pattern_must(malloc(bytes));
    memset(made->text, (int)(bytes & 0x7f), bytes);
    return made;
}

/* Remove the root of a tree; return its merged children. */
static struct node *without_root(struct node *root) {
    if (root->left == NULL || root->right == NULL) {
        struct node *left = root->left == NULL ? root->right : root->left;
        free(root->text);
        free(root);
        return left;
    }
    if (root->left->priority > root->right->priority) {
        struct node *top = turn_right(root);
        top->right = without_root(root);
        return top;
    }
    struct node *top = turn_left(root);
    top->left = without_root(root);
    return top;
}

/* Insert the key, or remove it if the tree has it. */
static struct node *toggle(struct node *root, uint32_t key, struct pattern_random *random) {
    if (root == NULL) return node_new(random, key);
    if (key == root->key) return without_root(root);
    if (key < root->key) {
        root->left = toggle(root->left, key, random);
        return root->left != NULL && root->left->priority > root->priority ? turn_right(root)
                                                                           : root;
    }
    root->right = toggle(root->right, key, random);
    return root->right != NULL && root->right->priority > root->priority ? turn_left(root) : root;
}

static uint64_t tree_drop(struct node *root) {
    if (root == NULL) return 0;
    uint64_t sum = tree_drop(root->left) + tree_drop(root->right) + root->key;
    free(root->text);
    free(root);
    return sum;
}

static void search_tree(uint64_t percent, struct pattern_result *result) {
    struct pattern_random random = {37};
    struct node *root = NULL;
    uint64_t times = pattern_share(3000000, percent);
    for (uint64_t i = 0; i < times; i++)
        root = toggle(root, pattern_below(&random, 20000), &random);
    *result = (struct pattern_result){times, tree_drop(root)};
}

/* --- documents -------------------------------------------------------------------------------- */

enum value_kind { NUMBER, TEXT, LIST, TABLE };

/* A value of a document, as a JSON parser creates it. */
struct value {
    enum value_kind kind;
    uint32_t count;
    union {
        double number;
        char *text;
        struct value **list;
    };
    char **keys; /* of a table, as many as values */
};

static char *text_new(struct pattern_random *random, uint32_t longest) {
    uint32_t length = pattern_between(random, 2, longest);
    char *text = pattern_must(malloc(length + 1));
    memset(text, 'a' + (int)pattern_below(random, 26), length);
    text[length] = '\0';
    return text;
}

static struct value *value_new(struct pattern_random *random, uint32_t depth) {
    struct value *made = pattern_must(malloc(sizeof *made));
    uint32_t kind = pattern_below(random, depth == 0 ? 2 : 5);
    made->kind = kind > TABLE ? TABLE : (enum value_kind)kind;
    made->keys = NULL;
    made->count = 0;
    if (made->kind == NUMBER) made->number = (double)pattern_below(random, 1000);
    if (made->kind == TEXT) made->text = text_new(random, 40);
    if (made->kind < LIST) return made;
    uint32_t count = made->count = pattern_between(random, 1, 8);
    made->list = pattern_must(malloc(count * sizeof(struct value *)));
    if (made->kind == TABLE) made->keys = pattern_must(malloc(count * sizeof(char *)));
    for (uint32_t i = 0; i < count; i++) {
        if (made->kind == TABLE) made->keys[i] = text_new(random, 16);
        made->list[i] = value_new(random, depth - 1);
    }
    return made;
}

/* Free a value and all values in it; return their number. */
static uint64_t value_drop(struct value *value) {
    uint64_t values = 1;
    for (uint32_t i = 0; i < value->count; i++) {
        values += value_drop(value->list[i]);
        if (value->keys != NULL) free(value->keys[i]);
    }
    free(value->keys);
    if (value->kind == TEXT) free(value->text);
    if (value->kind >= LIST) free(value->list);
    free(value);
    return values;
}

enum { DOCUMENTS = 20, DEPTH = 6 };

static void documents(uint64_t percent, struct pattern_result *result) {
    struct value *held[DOCUMENTS] = {NULL};
    struct pattern_random random = {41};
    uint64_t times = pattern_share(14000, percent);
    *result = (struct pattern_result){0, 0};
    for (uint64_t i = 0; i < times + DOCUMENTS; i++) {
        struct value **place = &held[i % DOCUMENTS];
        if (*place != NULL) result->check += value_drop(*place);
        *place = i < times ? value_new(&random, DEPTH) : NULL;
    }
    result->ops = result->check;
}

/* --- an event queue --------------------------------------------------------------------------- */

enum { EVENTS = 20000 };

struct event {
    uint64_t time;
    uint32_t bytes;
    char payload[];
};

/* A binary heap with the earliest event first. */
struct queue {
    struct event *event[EVENTS];
    uint32_t count;
};

static void queue_put(struct queue *queue, struct event *event) {
    uint32_t at = queue->count++;
    for (uint32_t up; at > 0 && event->time < queue->event[up = (at - 1) / 2]->time; at = up) {
        queue->event[at] = queue->event[up];
    }
    queue->event[at] = event;
}

static struct event *queue_take(struct queue *queue) {
    struct event *first = queue->event[0], *last = queue->event[--queue->count];
    uint32_t at = 0;
    for (uint32_t down; (down = 2 * at + 1) < queue->count; at = down) {
        if (down + 1 < queue->count && queue->event[down + 1]->time < queue->event[down]->time) {
            down++;
        }
        if (last->time <= queue->event[down]->time) break;
        queue->event[at] = queue->event[down];
    }
    queue->event[at] = last;
    return first;
}

static struct event *event_new(struct pattern_random *random, uint64_t now) {
    uint32_t bytes = pattern_between(random, 8, 300);
    struct event *made = pattern_must(malloc(sizeof *made + bytes));
    made->time = now + pattern_between(random, 1, 100000);
    made->bytes = bytes;
    made->payload[0] = (char)(bytes & 0x7f);
    return made;
}

/* Each due event creates up to two new events while the queue has room. */
static void events(uint64_t percent, struct pattern_result *result) {
    static struct queue queue;
    struct pattern_random random = {43};
    uint64_t times = pattern_share(5000000, percent);
    *result = (struct pattern_result){times, 0};
    for (uint64_t i = 0, now = 0; i < times; i++) {
        if (queue.count == 0) queue_put(&queue, event_new(&random, now));
        struct event *due = queue_take(&queue);
        now = due->time;
        result->check += due->bytes;
        free(due);
        uint32_t wanted = queue.count < EVENTS / 4 ? 2 : pattern_below(&random, 3);
        while (wanted-- > 0 && queue.count < EVENTS) queue_put(&queue, event_new(&random, now));
    }
    while (queue.count > 0) free(queue_take(&queue));
}

const struct pattern_program pattern_linking[] = {
    {"search-tree", search_tree},
    {"documents", documents},
    {"events", events},
    {NULL, NULL},
};
