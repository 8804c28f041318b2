/* SPDX-License-Identifier: Apache-2.0 */
/* Rows as a stream of one batch, for other tools: the Arrow C stream interface
 * (https://arrow.apache.org/docs/format/CStreamInterface.html). Part of the extension
 * spanwise._spanwise; results/arrow.py describes the columns.
 *
 * Everything is copied into memory of malloc, so a consumer may release what it got in any thread
 * and after the interpreter has ended. Only the capsule is Python's.
 */
#include "ffi_arrow.h"

#include <Python.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

static const char CAPSULE[] = "arrow_array_stream";
enum { NO_MEMORY = 12 }; /* ENOMEM, as the interface asks for */

/* --- schemas ---------------------------------------------------------------------------------- */

static char *copy_text(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

static void release_schema(struct ArrowSchema *schema) {
    for (int64_t i = 0; i < schema->n_children; i++) {
        struct ArrowSchema *child = schema->children[i];
        if (child && child->release) child->release(child);
        free(child);
    }
    free(schema->children);
    free((void *)(uintptr_t)schema->format);
    free((void *)(uintptr_t)schema->name);
    schema->release = NULL;
}

/* Makes a schema whose children are allocated but empty. On failure no memory stays allocated. */
static bool make_schema(struct ArrowSchema *out, const char *format, const char *name,
                        int64_t children) {
    *out = (struct ArrowSchema){
        .format = copy_text(format), .name = copy_text(name), .release = release_schema};
    bool made = out->format && out->name;
    if (made && children > 0) {
        out->children = calloc((size_t)children, sizeof *out->children);
        made = out->children != NULL;
    }
    for (int64_t i = 0; made && i < children; i++) {
        out->children[i] = calloc(1, sizeof **out->children);
        made = out->children[i] != NULL;
        out->n_children = i + 1;
    }
    if (!made) release_schema(out);
    return made;
}

static bool column_schema(struct ArrowSchema *out, const sw_arrow_column *column) {
    if (!make_schema(out, column->format, column->name, column->child_format ? 1 : 0)) return false;
    return !column->child_format || make_schema(out->children[0], column->child_format, "item", 0);
}

static bool copy_schema(struct ArrowSchema *out, const struct ArrowSchema *from) {
    if (!make_schema(out, from->format, from->name, from->n_children)) return false;
    for (int64_t i = 0; i < from->n_children; i++) {
        if (!copy_schema(out->children[i], from->children[i])) {
            release_schema(out);
            return false;
        }
    }
    return true;
}

/* --- arrays ----------------------------------------------------------------------------------- */

static void release_array(struct ArrowArray *array) {
    for (int64_t i = 0; i < array->n_children; i++) {
        struct ArrowArray *child = array->children[i];
        if (child && child->release) child->release(child);
        free(child);
    }
    free(array->children);
    for (int64_t i = 0; array->buffers && i < array->n_buffers; i++) {
        free((void *)(uintptr_t)array->buffers[i]);
    }
    free(array->buffers);
    array->release = NULL;
}

/* Makes an array with NULL buffers and empty children. On failure no memory stays allocated. */
static bool make_array(struct ArrowArray *out, int64_t length, int64_t buffers, int64_t children) {
    *out = (struct ArrowArray){.length = length, .n_buffers = buffers, .release = release_array};
    out->buffers = calloc((size_t)buffers, sizeof *out->buffers);
    bool made = out->buffers != NULL;
    if (made && children > 0) {
        out->children = calloc((size_t)children, sizeof *out->children);
        made = out->children != NULL;
    }
    for (int64_t i = 0; made && i < children; i++) {
        out->children[i] = calloc(1, sizeof **out->children);
        made = out->children[i] != NULL;
        out->n_children = i + 1;
    }
    if (!made) release_array(out);
    return made;
}

/* Buffer 0, the bitmap of valid values, stays NULL, because all values are valid. */
static bool fill_buffers(struct ArrowArray *array, const sw_arrow_column *column) {
    for (int64_t i = 1; i < array->n_buffers; i++) {
        size_t bytes = column->buffer_bytes[i - 1];
        void *copy = malloc(bytes ? bytes : 1);
        if (!copy) return false;
        if (bytes) memcpy(copy, column->buffers[i - 1], bytes);
        array->buffers[i] = copy;
    }
    return true;
}

static bool column_array(struct ArrowArray *out, int64_t rows, const sw_arrow_column *column) {
    int64_t buffers = 1 + (column->buffers[0] != NULL) + (column->buffers[1] != NULL);
    if (!column->child_format) {
        return make_array(out, rows, buffers, 0) && fill_buffers(out, column);
    }
    return make_array(out, rows, 1, 1) &&
           make_array(out->children[0], rows * column->width, buffers, 0) &&
           fill_buffers(out->children[0], column);
}

/* --- the stream ------------------------------------------------------------------------------- */

typedef struct {
    struct ArrowSchema schema;
    struct ArrowArray array; /* its release is NULL once it was handed out */
} stream_state;

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    stream_state *state = stream->private_data;
    return copy_schema(out, &state->schema) ? 0 : NO_MEMORY;
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    stream_state *state = stream->private_data;
    *out = state->array; /* at the second call it is released already, which means the end */
    state->array.release = NULL;
    return 0;
}

static const char *get_last_error(struct ArrowArrayStream *stream) {
    (void)stream;
    return NULL;
}

static void release_stream(struct ArrowArrayStream *stream) {
    stream_state *state = stream->private_data;
    if (state->schema.release) state->schema.release(&state->schema);
    if (state->array.release) state->array.release(&state->array);
    free(state);
    stream->release = NULL;
}

static bool fill_state(stream_state *state, int64_t rows, const sw_arrow_column *columns,
                       int64_t count) {
    if (!make_schema(&state->schema, "+s", "", count)) return false;
    if (!make_array(&state->array, rows, 1, count)) return false;
    for (int64_t i = 0; i < count; i++) {
        if (!column_schema(state->schema.children[i], &columns[i])) return false;
        if (!column_array(state->array.children[i], rows, &columns[i])) return false;
    }
    return true;
}

static struct ArrowArrayStream *make_stream(int64_t rows, const sw_arrow_column *columns,
                                            int64_t count) {
    struct ArrowArrayStream *stream = malloc(sizeof *stream);
    stream_state *state = calloc(1, sizeof *state);
    if (!stream || !state) {
        free(stream);
        free(state);
        return NULL;
    }
    *stream = (struct ArrowArrayStream){.get_schema = get_schema,
                                        .get_next = get_next,
                                        .get_last_error = get_last_error,
                                        .release = release_stream,
                                        .private_data = state};
    if (fill_state(state, rows, columns, count)) return stream;
    release_stream(stream);
    free(stream);
    return NULL;
}

/* --- the capsule ------------------------------------------------------------------------------ */

static void end_capsule(PyObject *capsule) {
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, CAPSULE);
    if (!stream) return;
    if (stream->release) stream->release(stream); /* else a consumer has taken it over */
    free(stream);
}

int sw_arrow_capsule(uintptr_t list, int64_t rows, const sw_arrow_column *columns, int64_t count) {
    struct ArrowArrayStream *stream = make_stream(rows, columns, count);
    if (!stream) return -1;
    PyGILState_STATE held = PyGILState_Ensure(); /* cffi calls without the interpreter's lock */
    PyObject *capsule = PyCapsule_New(stream, CAPSULE, end_capsule);
    int status = capsule ? PyList_Append((PyObject *)list, capsule) : -1;
    if (!capsule) {
        release_stream(stream);
        free(stream);
    }
    Py_XDECREF(capsule);
    if (status != 0) PyErr_Clear();
    PyGILState_Release(held);
    return status;
}
