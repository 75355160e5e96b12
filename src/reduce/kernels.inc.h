/*
 * kernels.inc.h - the kernels, compiled once for each instruction set by kernels_<set>.c, which
 * defines DT_KERNELS (the table's name), DT_VECTOR_BYTES and DT_VECTOR_NATIVE (1 where the set
 * converts fp16 itself).
 *
 * Memory is read once and written once. Two ways lead there: `direct` keeps a block of vectors
 * in registers from the sources to the destinations, for the sums that training is made of;
 * `tiles` handles everything else, combining the tree's subtrees in tiles that stay in the
 * first-level cache. Both compute an element by the same operations in the same order. A block
 * or tile is read from all sources before any of it is written, because a destination may be a
 * source.
 */
#include "reduce/kernels.h"
#include "reduce/vec.h"

#define TILE                                                                             \
    (2048 / DT_VECTOR_BYTES) /* vectors: a few tiles leave room in the first-level cache \
                              */
#define DEPTH 32             /* tiles: enough for 2^31 sources */
#define GROUP 4 /* sources that are combined in registers; a power of two, as subtrees are */
#define BLOCK 4 /* vectors of the direct path */

/* The factors in the type of the accumulation; `divisor` is inverted unless it divides. */
typedef struct factors {
    int scaled;
    int divides;
    float prescale_f32, divisor_f32, postscale_f32;
    double prescale_f64, divisor_f64, postscale_f64;
} factors_t;

DT_INLINE factors_t make_factors(dtrain_dtype_t type, const dt_kernel_job_t *job)
{
    factors_t factors = {.scaled = job->scaled, .divides = job->divides};
    double divisor = job->divides ? job->divisor : 1 / job->divisor;
    if (type == DTRAIN_DTYPE_F64) {
        factors.prescale_f64 = job->prescale;
        factors.divisor_f64 = divisor;
        factors.postscale_f64 = job->postscale;
    } else {
        factors.prescale_f32 = (float)job->prescale;
        factors.divisor_f32 = (float)divisor;
        factors.postscale_f32 = (float)job->postscale;
    }
    return factors;
}

DT_INLINE vec_t prescale(dtrain_dtype_t type, const factors_t *factors, vec_t value)
{
    if (!vec_is_float(type) || !factors->scaled)
        return value;
    if (type == DTRAIN_DTYPE_F64)
        return (vec_t)((vec_f64_t)value * factors->prescale_f64);
    return (vec_t)((vec_f32_t)value * factors->prescale_f32);
}

DT_INLINE vec_t finish(dtrain_dtype_t type, const factors_t *factors, vec_t value)
{
    if (!vec_is_float(type) || !factors->scaled)
        return value;
    if (type == DTRAIN_DTYPE_F64) {
        vec_f64_t sum = (vec_f64_t)value;
        sum = factors->divides ? sum / factors->divisor_f64 : sum * factors->divisor_f64;
        return (vec_t)(sum * factors->postscale_f64);
    }
    vec_f32_t sum = (vec_f32_t)value;
    sum = factors->divides ? sum / factors->divisor_f32 : sum * factors->divisor_f32;
    return (vec_t)(sum * factors->postscale_f32);
}

DT_INLINE vec_t leaf(dtrain_dtype_t type, int whole, const factors_t *factors, const char *source)
{
    return prescale(type, factors, vec_load(type, whole, source));
}

/* The sum of n <= GROUP sources, as a tree, of the vector (or, unless `whole`, the element) at
 * `offset`. n is a constant. */
DT_INLINE vec_t sum(dtrain_dtype_t type, int whole, const factors_t *factors,
                    const void *const *sources, int n, size_t offset)
{
    vec_t a = leaf(type, whole, factors, (const char *)sources[0] + offset);
    if (n == 1)
        return a;
    vec_t b = leaf(type, whole, factors, (const char *)sources[1] + offset);
    a = vec_sum(type, a, b);
    if (n == 2)
        return a;
    b = leaf(type, whole, factors, (const char *)sources[2] + offset);
    if (n == 4)
        b = vec_sum(type, b, leaf(type, whole, factors, (const char *)sources[3] + offset));
    return vec_sum(type, a, b);
}

/* ---- The direct path: sums of 2 to 4 sources -------------------------------------------- */

DT_INLINE void store_block(dtrain_dtype_t type, void *destination, size_t offset, vec_t v0,
                           vec_t v1, vec_t v2, vec_t v3)
{
    const size_t step = vec_lanes(type) * vec_element(type);
    char *to = (char *)destination + offset;
    vec_store(type, 1, to, v0);
    vec_store(type, 1, to + step, v1);
    vec_store(type, 1, to + 2 * step, v2);
    vec_store(type, 1, to + 3 * step, v3);
}

/* Reduces as many whole blocks as there are and returns their elements. n and scaled are
 * constants. */
DT_INLINE size_t direct_blocks(dtrain_dtype_t type, int n, int scaled, const dt_kernel_job_t *job)
{
    const size_t step = vec_lanes(type) * vec_element(type);
    const size_t blocks = job->count / (BLOCK * vec_lanes(type));
    const void *const source[GROUP] = {job->sources[0], job->sources[1],
                                       n > 2 ? job->sources[2] : NULL,
                                       n > 3 ? job->sources[3] : NULL};
    const int num_destinations = job->num_destinations;
    void *const first = job->destinations[0];
    void *const second = num_destinations > 1 ? job->destinations[1] : NULL;
    factors_t f = make_factors(type, job);
    f.scaled = scaled;

    for (size_t block = 0; block < blocks; block++) {
        size_t offset = block * BLOCK * step;
        vec_t v0 = finish(type, &f, sum(type, 1, &f, source, n, offset));
        vec_t v1 = finish(type, &f, sum(type, 1, &f, source, n, offset + step));
        vec_t v2 = finish(type, &f, sum(type, 1, &f, source, n, offset + 2 * step));
        vec_t v3 = finish(type, &f, sum(type, 1, &f, source, n, offset + 3 * step));
        store_block(type, first, offset, v0, v1, v2, v3);
        if (num_destinations > 1)
            store_block(type, second, offset, v0, v1, v2, v3);
        for (int i = 2; i < num_destinations; i++)
            store_block(type, job->destinations[i], offset, v0, v1, v2, v3);
    }
    return blocks * BLOCK * vec_lanes(type);
}

DT_INLINE size_t direct_n(dtrain_dtype_t type, int n, const dt_kernel_job_t *job)
{
    return job->scaled ? direct_blocks(type, n, 1, job) : direct_blocks(type, n, 0, job);
}

/* Returns how many elements are done: 0 when this path is not for the job. */
DT_INLINE size_t direct(dtrain_dtype_t type, const dt_kernel_job_t *job)
{
    switch (job->num_sources) {
    case 2:
        return direct_n(type, 2, job);
    case 3:
        return direct_n(type, 3, job);
    case 4:
        return direct_n(type, 4, job);
    default:
        return 0;
    }
}

/* ---- Tiles of accumulators ------------------------------------------------------------------ */

DT_INLINE void merge_op(dtrain_dtype_t type, dtrain_op_t op, size_t size, vec_t *left,
                        const vec_t *right)
{
    for (size_t i = 0; i < size; i++)
        left[i] = vec_combine(type, op, left[i], right[i]);
}

DT_INLINE void merge_type(dtrain_dtype_t type, dtrain_op_t op, size_t size, vec_t *left,
                          const vec_t *right)
{
    switch (op) {
    case DTRAIN_OP_MIN:
        return merge_op(type, DTRAIN_OP_MIN, size, left, right);
    case DTRAIN_OP_MAX:
        return merge_op(type, DTRAIN_OP_MAX, size, left, right);
    case DTRAIN_OP_PRODUCT:
        return merge_op(type, DTRAIN_OP_PRODUCT, size, left, right);
    default:
        return merge_op(type, DTRAIN_OP_SUM, size, left, right);
    }
}

/* left[i] = left[i] op right[i]. */
static void merge(dtrain_dtype_t type, dtrain_op_t op, size_t size, vec_t *left, const vec_t *right)
{
    switch (type) {
    case DTRAIN_DTYPE_U8:
        return merge_type(DTRAIN_DTYPE_U8, op, size, left, right);
    case DTRAIN_DTYPE_I8:
        return merge_type(DTRAIN_DTYPE_I8, op, size, left, right);
    case DTRAIN_DTYPE_U16:
        return merge_type(DTRAIN_DTYPE_U16, op, size, left, right);
    case DTRAIN_DTYPE_I16:
        return merge_type(DTRAIN_DTYPE_I16, op, size, left, right);
    case DTRAIN_DTYPE_I32:
        return merge_type(DTRAIN_DTYPE_I32, op, size, left, right);
    case DTRAIN_DTYPE_I64:
        return merge_type(DTRAIN_DTYPE_I64, op, size, left, right);
    case DTRAIN_DTYPE_F64:
        return merge_type(DTRAIN_DTYPE_F64, op, size, left, right);
    case DTRAIN_DTYPE_BOOL:
        return merge_type(DTRAIN_DTYPE_BOOL, op, size, left, right);
    default: /* fp16 and bf16 are fp32 here */
        return merge_type(DTRAIN_DTYPE_F32, op, size, left, right);
    }
}

/* ---- The tiles: everything else ----------------------------------------------------------- */

/* Part of a job that is done at once: `size` vectors, or single elements, from `offset` bytes. */
typedef struct part {
    size_t offset;
    size_t step; /* bytes from one to the next */
    size_t size; /* 1 to TILE */
} part_t;

DT_INLINE void fill_n(dtrain_dtype_t type, int whole, const factors_t *factors,
                      const void *const *sources, int n, part_t part, vec_t *tile)
{
    for (size_t i = 0; i < part.size; i++)
        tile[i] = sum(type, whole, factors, sources, n, part.offset + i * part.step);
}

/* One source, or the sum of up to GROUP sources, into a tile. */
DT_INLINE void fill(dtrain_dtype_t type, int whole, const factors_t *factors,
                    const void *const *sources, int n, part_t part, vec_t *tile)
{
    if (n == 1 || !whole || !vec_is_float(type))
        fill_n(type, whole, factors, sources, 1, part, tile);
    else if (n == 2)
        fill_n(type, whole, factors, sources, 2, part, tile);
    else if (n == 3)
        fill_n(type, whole, factors, sources, 3, part, tile);
    else
        fill_n(type, whole, factors, sources, 4, part, tile);
}

/*
 * The tree over all sources, into tiles[0]. The tiles are a binary counter: after g groups
 * there is one tile for each bit set in g, which holds a subtree of as many groups. Two of a
 * size become one of twice the size; at the end the smaller ones join the larger from the right.
 */
DT_INLINE void tree(dtrain_dtype_t type, int whole, const factors_t *factors,
                    const dt_kernel_job_t *job, part_t part, vec_t (*tiles)[TILE])
{
    const int group = whole && vec_is_float(type) && job->op == DTRAIN_OP_SUM ? GROUP : 1;
    int depth = 0;
    for (int first = 0, left = job->num_sources; left > 0; first += group, left -= group) {
        int n = left < group ? left : group;
        fill(type, whole, factors, job->sources + first, n, part, tiles[depth++]);
        unsigned groups = (unsigned)(first / group) + 1;
        for (; depth > 1 && (groups % 2 == 0 || left <= group); groups /= 2, depth--)
            merge(type, job->op, part.size, tiles[depth - 2], tiles[depth - 1]);
    }
}

DT_INLINE void flush(dtrain_dtype_t type, int whole, const factors_t *factors,
                     const dt_kernel_job_t *job, part_t part, vec_t *tile)
{
    for (size_t i = 0; i < part.size; i++)
        tile[i] = finish(type, factors, tile[i]);
    for (int d = 0; d < job->num_destinations; d++) {
        char *to = (char *)job->destinations[d] + part.offset;
        for (size_t i = 0; i < part.size; i++)
            vec_store(type, whole, to + i * part.step, tile[i]);
    }
}

/* Reduces from element `done` on, as far as whole vectors (or single elements) reach; returns
 * the elements done by then. */
DT_INLINE size_t tiles_from(dtrain_dtype_t type, int whole, size_t done, const dt_kernel_job_t *job,
                            vec_t (*tiles)[TILE])
{
    const size_t lanes = whole ? vec_lanes(type) : 1;
    const factors_t factors = make_factors(type, job);
    while (job->count - done >= lanes) {
        size_t left = (job->count - done) / lanes;
        part_t part = {.offset = done * vec_element(type),
                       .step = lanes * vec_element(type),
                       .size = left < TILE ? left : TILE};
        tree(type, whole, &factors, job, part, tiles);
        flush(type, whole, &factors, job, part, tiles[0]);
        done += part.size * lanes;
    }
    return done;
}

/* ---- By type ------------------------------------------------------------------------------ */

DT_INLINE void reduce(dtrain_dtype_t type, const dt_kernel_job_t *job)
{
    vec_t tiles[DEPTH][TILE];
    size_t done = 0;
    if (vec_is_float(type) && job->op == DTRAIN_OP_SUM)
        done = direct(type, job);
    done = tiles_from(type, 1, done, job, tiles);
    tiles_from(type, 0, done, job, tiles);
}

static void reduce_u8(const dt_kernel_job_t *job)
{
    reduce(DTRAIN_DTYPE_U8, job);
}

static void reduce_i8(const dt_kernel_job_t *job)
{
    reduce(DTRAIN_DTYPE_I8, job);
}

static void reduce_u16(const dt_kernel_job_t *job)
{
    reduce(DTRAIN_DTYPE_U16, job);
}

static void reduce_i16(const dt_kernel_job_t *job)
{
    reduce(DTRAIN_DTYPE_I16, job);
}

static void reduce_i32(const dt_kernel_job_t *job)
{
    reduce(DTRAIN_DTYPE_I32, job);
}

static void reduce_i64(const dt_kernel_job_t *job)
{
    reduce(DTRAIN_DTYPE_I64, job);
}

static void reduce_f16(const dt_kernel_job_t *job)
{
    reduce(DTRAIN_DTYPE_F16, job);
}

static void reduce_bf16(const dt_kernel_job_t *job)
{
    reduce(DTRAIN_DTYPE_BF16, job);
}

static void reduce_f32(const dt_kernel_job_t *job)
{
    reduce(DTRAIN_DTYPE_F32, job);
}

static void reduce_f64(const dt_kernel_job_t *job)
{
    reduce(DTRAIN_DTYPE_F64, job);
}

static void reduce_bool(const dt_kernel_job_t *job)
{
    reduce(DTRAIN_DTYPE_BOOL, job);
}

/* ---- Conversions ---------------------------------------------------------------------------- */

/* Whole vectors, or single elements, from element `done` on; returns the elements done by then.
 * Both types have as many lanes, since fp16 and bf16 are fp32 in a vector. */
DT_INLINE size_t convert_from(dtrain_dtype_t from, dtrain_dtype_t to, int whole, size_t done,
                              const char *in, char *out, size_t count)
{
    const size_t lanes = whole ? vec_lanes(from) : 1;
    for (; count - done >= lanes; done += lanes)
        vec_store(to, whole, out + done * vec_element(to),
                  vec_load(from, whole, in + done * vec_element(from)));
    return done;
}

DT_INLINE void convert(dtrain_dtype_t from, dtrain_dtype_t to, const void *in, void *out,
                       size_t count)
{
    size_t done = convert_from(from, to, 1, 0, in, out, count);
    convert_from(from, to, 0, done, in, out, count);
}

static void narrow_f16(const void *in, void *out, size_t count)
{
    convert(DTRAIN_DTYPE_F32, DTRAIN_DTYPE_F16, in, out, count);
}

static void narrow_bf16(const void *in, void *out, size_t count)
{
    convert(DTRAIN_DTYPE_F32, DTRAIN_DTYPE_BF16, in, out, count);
}

static void widen_f16(const void *in, void *out, size_t count)
{
    convert(DTRAIN_DTYPE_F16, DTRAIN_DTYPE_F32, in, out, count);
}

static void widen_bf16(const void *in, void *out, size_t count)
{
    convert(DTRAIN_DTYPE_BF16, DTRAIN_DTYPE_F32, in, out, count);
}

const dt_kernel_set_t DT_KERNELS = {
    .reduce = {[DTRAIN_DTYPE_U8] = reduce_u8,
               [DTRAIN_DTYPE_I8] = reduce_i8,
               [DTRAIN_DTYPE_U16] = reduce_u16,
               [DTRAIN_DTYPE_I16] = reduce_i16,
               [DTRAIN_DTYPE_I32] = reduce_i32,
               [DTRAIN_DTYPE_I64] = reduce_i64,
               [DTRAIN_DTYPE_F16] = reduce_f16,
               [DTRAIN_DTYPE_BF16] = reduce_bf16,
               [DTRAIN_DTYPE_F32] = reduce_f32,
               [DTRAIN_DTYPE_F64] = reduce_f64,
               [DTRAIN_DTYPE_BOOL] = reduce_bool},
    .narrow = {[DTRAIN_DTYPE_F16] = narrow_f16, [DTRAIN_DTYPE_BF16] = narrow_bf16},
    .widen = {[DTRAIN_DTYPE_F16] = widen_f16, [DTRAIN_DTYPE_BF16] = widen_bf16}};
