/* Where the tensors of a step are in memory, and whether a step may go over them as lines. */

#include <stdint.h>

#include "threads.h"

/* What DLPack's exchange of tensors tells of one of them. Shape and strides are the tensor's own. */
typedef struct {
    char *data;
    int32_t device, device_index, axes;
    uint8_t kind, bits;
    uint16_t lanes;
    const int64_t *shape, *strides;
    uint64_t offset;
} tensor;

typedef struct {
    int (*export)(void *object, tensor *out);
    int64_t columns, tensors;
    void *const *const *objects; /* of each column */
    void **const *starts;        /* of each column, filled here */
    int64_t *bytes, *elements;   /* of each tensor, and of all; filled here */
} search;

enum { CPU = 1, FLOAT = 2 };

/* Whether the elements fill a contiguous range of memory, in any order. */
static int is_dense(const tensor *t)
{
    int64_t filled = 1, left = 0;
    for (int a = 0; a < t->axes; a++) {
        if (t->shape[a] == 0) return 1;
        left += t->shape[a] != 1;
    }
    for (; left > 0; left--) {
        int a = t->axes - 1;
        while (a >= 0 && (t->shape[a] == 1 || t->strides[a] != filled)) a--;
        if (a < 0) return 0;
        filled *= t->shape[a];
    }
    return 1;
}

/* Whether two tensors have one shape, and their elements in one order in memory. */
static int is_alike(const tensor *t, const tensor *other)
{
    if (t->axes != other->axes) return 0;
    for (int a = 0; a < t->axes; a++)
        if (t->shape[a] != other->shape[a] ||
            (t->shape[a] != 1 && t->strides[a] != other->strides[a]))
            return 0;
    return 1;
}

/* Finds where tensors begin, if they are on the CPU and of this dtype, those of the first column are
   dense, and those of the others are like them. Python's lock is held. */
int find_places(const search *p)
{
    int64_t elements = 0;
    for (int64_t i = 0; i < p->tensors; i++) {
        int64_t size = 1;
        tensor first, own;
        for (int64_t c = 0; c < p->columns; c++) {
            tensor *t = c ? &own : &first;
            if (p->export(p->objects[c][i], t)) return OUTSIDE; /* with an exception */
            if (t->device != CPU || t->kind != FLOAT || t->bits != 8 * sizeof(REAL) ||
                t->lanes != 1 || (t->axes && !t->strides))
                return OUTSIDE;
            if (c ? !is_alike(t, &first) : !is_dense(t)) return OUTSIDE;
            p->starts[c][i] = t->data + t->offset;
        }
        for (int a = 0; a < first.axes; a++) size *= first.shape[a];
        p->bytes[i] = size * (int64_t)sizeof(REAL);
        elements += size;
    }
    *p->elements = elements;
    return DONE;
}
