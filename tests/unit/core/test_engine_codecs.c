/* Allreduces that travel encoded, against the definition: each share is encoded by itself, added
 * up in rank order, and encoded again. Bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "core/operand.h"
#include "engine_world.h"
#include "reduce/codec.h"

#define COUNT_MAX 5000
#define STEPS 4

static float gradient(int rank, int step, int64_t i)
{
    return (float)(sin(1 + rank * 0.7 + step * 0.3 + (double)i * 0.013 * (1 + rank % 3)) *
                   (1 + rank) * (i % 11 == 0 ? 20 : 1));
}

/* Bit for bit. */
static int is_same(const void *a, const void *b, int64_t count)
{
    return memcmp(a, b, (size_t)count * sizeof(float)) == 0;
}

/* ---- The definition ---------------------------------------------------------------------------
 */

typedef struct model {
    float residual[ENGINE_RANKS_MAX][COUNT_MAX]; /* of the ranks' tensors */
    float reduced[COUNT_MAX];                    /* ditto, of the results' shares */
    float arrived[ENGINE_RANKS_MAX][COUNT_MAX];
    float wanted[COUNT_MAX];
    char coded[8 * COUNT_MAX + 64];
} model_t;

/* What arrives of in[0 … n-1], which takes the place of `out`. */
static void travel(model_t *model, const dtrain_codec_t *codec, const float *in, int64_t n,
                   float *residual, float *out)
{
    int has_feedback = (codec->flags & DTRAIN_CODEC_FEEDBACK) != 0;
    for (int64_t i = 0; i < n; i++)
        model->wanted[i] = has_feedback ? in[i] + residual[i] : in[i];
    codec->encode(codec, model->wanted, n, model->coded);
    codec->decode(codec, model->coded, n, out);
    for (int64_t i = 0; i < n; i++)
        residual[i] = model->wanted[i] - out[i];
}

/* The average over `size` ranks of their gradients at a step, by a codec. */
static void expect(model_t *model, const dtrain_codec_t *codec, int size, int step, int64_t count,
                   float *out)
{
    dt_reduction_t reduction = {.dtype = DTRAIN_DTYPE_F32,
                                .op = DTRAIN_OP_AVERAGE,
                                .divisor = size,
                                .prescale = 0.5,
                                .postscale = 3};
    for (int owner = 0; owner < size; owner++) {
        int64_t first = dt_rows_before(count, size, owner), n = dt_rows_of(count, size, owner);
        const void *sources[ENGINE_RANKS_MAX];
        for (int rank = 0; rank < size; rank++) {
            float in[COUNT_MAX];
            for (int64_t i = 0; i < n; i++)
                in[i] = gradient(rank, step, first + i);
            travel(model, codec, in, n, &model->residual[rank][first], model->arrived[rank]);
            sources[rank] = model->arrived[rank];
        }
        void *result = model->arrived[0];
        dt_reduce(&reduction, &result, 1, sources, size, (size_t)n);
        travel(model, codec, result, n, &model->reduced[first], out + first);
    }
}

/* ---- The library's --------------------------------------------------------------------------- */

static const char *const names[] = {"int8", "topk:0.1", "topk:1", "mine"};
#define NUM_NAMES 4

/* A program's own: every value becomes a whole number of `user`. */
static int64_t whole_bytes(const dtrain_codec_t *codec, int64_t count)
{
    (void)codec;
    return 2 * count;
}

static void whole_encode(const dtrain_codec_t *codec, const float *in, int64_t count, void *out)
{
    int16_t *to = out;
    for (int64_t i = 0; i < count; i++)
        to[i] = (int16_t)lrintf(in[i] / *(const float *)codec->user);
}

static int whole_decode(const dtrain_codec_t *codec, const void *in, int64_t count, float *out)
{
    const int16_t *from = in;
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)from[i] * *(const float *)codec->user;
    return 0;
}

static float unit = 0.125f;
static const dtrain_codec_t whole = {.struct_size = sizeof whole,
                                     .name = "mine",
                                     .coded_bytes = whole_bytes,
                                     .encode = whole_encode,
                                     .decode = whole_decode,
                                     .user = &unit};

static const dtrain_codec_t *find(const char *name, dt_codec_t *own)
{
    return dt_codec_make(name, own) == DTRAIN_OK ? &own->base : &whole;
}

static engine_op_t average(const char *name, float *in, float *out, int64_t count,
                           const dtrain_codec_t *codec)
{
    engine_op_t op = {.name = name,
                      .op = DTRAIN_OP_AVERAGE,
                      .in = in,
                      .out = out,
                      .count = count,
                      .prescale = 0.5,
                      .postscale = 3,
                      .codec = codec};
    return op;
}

static void compare(engine_rank_t *self)
{
    static const int64_t counts[] = {1, 2, 7, 300, 1000, COUNT_MAX};
    float *in = engine_buffer(self, sizeof(float) * COUNT_MAX);
    float *out = engine_buffer(self, sizeof(float) * COUNT_MAX);
    float *wanted = engine_buffer(self, sizeof(float) * COUNT_MAX);
    model_t *model = engine_buffer(self, sizeof *model);
    for (int round = 0; round < NUM_NAMES * 6; round++) {
        dt_codec_t own;
        const dtrain_codec_t *codec = find(names[round % NUM_NAMES], &own);
        int64_t count = counts[round / NUM_NAMES];
        memset(model, 0, sizeof *model);
        for (int step = 0; step < STEPS; step++) {
            for (int64_t i = 0; i < count; i++)
                in[i] = gradient(self->rank, step, i);
            float *to = step % 2 ? out : in;
            engine_op_t op = average("x", in, to, count, codec);
            ENGINE_OK(self, engine_do(self, &op));
            expect(model, codec, self->size, step, count, wanted);
            ENGINE_CHECK(self, is_same(to, wanted, count));
        }
    }
}

static void test_engine_codecs_are_as_defined_at_every_step(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++)
        engine_run(size, NULL, compare, NULL);
}

/* Rounded, added in fp32, averaged, and rounded once more: 40000 + 40000 does not overflow. */
static void round_to_16_bits(engine_rank_t *self)
{
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
        float in[3] = {40000, 1.0f / 3, (float)(1 + self->rank)}, out[3], expected[3];
        uint16_t halves[ENGINE_RANKS_MAX][3], result[3];
        dtrain_dtype_t dtype = is_bf16 ? DTRAIN_DTYPE_BF16 : DTRAIN_DTYPE_F16;
        const void *sources[ENGINE_RANKS_MAX];
        for (int rank = 0; rank < self->size; rank++) {
            float of_rank[3] = {in[0], in[1], (float)(1 + rank)};
            dt_narrow(dtype, of_rank, halves[rank], 3);
            sources[rank] = halves[rank];
        }
        dt_reduction_t reduction = {.dtype = dtype,
                                    .op = DTRAIN_OP_AVERAGE,
                                    .divisor = self->size,
                                    .prescale = 0.5,
                                    .postscale = 3};
        void *to = result;
        dt_reduce(&reduction, &to, 1, sources, self->size, 3);
        dt_widen(dtype, result, expected, 3);
        dt_codec_t codec;
        ENGINE_OK(self, dt_codec_make(is_bf16 ? "bf16" : "fp16", &codec));
        engine_op_t op = average("x", in, out, 3, &codec.base);
        for (int step = 0; step < 3; step++) {
            ENGINE_OK(self, engine_do(self, &op));
            ENGINE_CHECK(self, is_same(out, expected, 3));
        }
        ENGINE_CHECK(self, isfinite(out[0]));
    }
}

static void test_engine_codecs_of_16_bits_round_before_and_after(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++)
        engine_run(size, NULL, round_to_16_bits, NULL);
}

/* ---- Fusion ---------------------------------------------------------------------------------- */

#define NUM_TENSORS 12

/* Many tensors at once, of several codecs and none: `argument` receives rank 0's results. */
static void many(engine_rank_t *self)
{
    float(*in)[500] = engine_buffer(self, sizeof(float) * NUM_TENSORS * 500);
    float(*out)[500] = engine_buffer(self, sizeof(float) * NUM_TENSORS * 500);
    dt_codec_t own[NUM_TENSORS];
    for (int step = 0; step < 3; step++) {
        dtrain_handle_t handles[NUM_TENSORS];
        for (int t = 0; t < NUM_TENSORS; t++) {
            const char *codecs[] = {"int8", "fp16", "topk:0.05"};
            char name[2] = {(char)('a' + t), 0};
            const dtrain_codec_t *codec = t % 4 == 3 ? NULL : find(codecs[t % 4], &own[t]);
            int64_t count = 37 * t + 1;
            for (int64_t i = 0; i < count; i++)
                in[t][i] = gradient(self->rank, step + t, i);
            engine_op_t op = average(name, in[t], out[t], count, codec);
            ENGINE_OK(self, engine_submit(self, &op, &handles[t]));
        }
        for (int t = 0; t < NUM_TENSORS; t++)
            ENGINE_OK(self, engine_finish(self, handles[t]));
    }
    if (self->rank == 1)
        memcpy(self->argument, out, sizeof(float) * NUM_TENSORS * 500);
}

static void test_engine_codecs_give_the_same_bits_fused_and_unfused(void **state)
{
    (void)state;
    static float fused[NUM_TENSORS][500], unfused[NUM_TENSORS][500];
    dt_config_t config = engine_config();
    engine_run(3, &config, many, fused);
    config.fusion_threshold = 0;
    engine_run(3, &config, many, unfused);
    assert_memory_equal(fused, unfused, sizeof fused);
}

/* ---- Feedback -------------------------------------------------------------------------------- */

/* The same gradient again and again: what has been added up is what would have been added up
 * without a codec, but for what is still left out. */
static void add_up(engine_rank_t *self)
{
    float in[200], out[200], sum[200] = {0};
    dt_codec_t codec;
    ENGINE_OK(self, dt_codec_make("topk:0.05", &codec));
    for (int step = 0; step < 400; step++) {
        for (int i = 0; i < 200; i++)
            in[i] = (float)(1 + i % 7);
        engine_op_t op = {.name = "x", .in = in, .out = out, .count = 200, .codec = &codec.base};
        ENGINE_OK(self, engine_do(self, &op));
        for (int i = 0; i < 200; i++)
            sum[i] += out[i];
    }
    for (int i = 0; i < 200; i++) {
        float mean = sum[i] / 400 / (float)self->size;
        ENGINE_CHECK(self, fabsf(mean - in[i]) < 0.5f);
    }
}

static void test_engine_codecs_with_feedback_lose_nothing(void **state)
{
    (void)state;
    engine_run(2, NULL, add_up, NULL);
}

/* What was left out of one shape is not added to another. */
static void change_shape(engine_rank_t *self)
{
    float in[64] = {5, 3}, out[64];
    dt_codec_t codec;
    ENGINE_OK(self, dt_codec_make("topk:0.01", &codec));
    int64_t counts[] = {2 * self->size, 3 * self->size, 2 * self->size};
    for (int i = 0; i < 3; i++) {
        engine_op_t op = {
            .name = "x", .in = in, .out = out, .count = counts[i], .codec = &codec.base};
        ENGINE_OK(self, engine_do(self, &op));
        ENGINE_CHECK(self, out[0] == (float)(5 * self->size) && out[1] == 0);
    }
    engine_op_t op = {.name = "x", .in = in, .out = out, .count = counts[2], .codec = &codec.base};
    ENGINE_OK(self, engine_do(self, &op));
    ENGINE_CHECK(self, out[0] == 0 || out[1] == 0);
    ENGINE_CHECK(self, out[0] + out[1] > 5 * self->size);
}

static void test_engine_codecs_feedback_begins_anew_with_another_shape(void **state)
{
    (void)state;
    engine_run(3, NULL, change_shape, NULL);
}

/* An overflow is seen, and does not stay. */
static void overflow(engine_rank_t *self)
{
    dt_codec_t codec;
    ENGINE_OK(self, dt_codec_make("int8", &codec));
    for (int step = 0; step < 3; step++) {
        float x[4] = {1, 2, 3, 4};
        if (step == 1 && self->rank == 0)
            x[0] = INFINITY;
        engine_op_t op = {.name = "x", .in = x, .out = x, .count = 4, .codec = &codec.base};
        ENGINE_OK(self, engine_do(self, &op));
        ENGINE_CHECK(self, step == 1 ? isnan(x[0]) : isfinite(x[0]) && isfinite(x[3]));
    }
}

static void test_engine_codecs_pass_on_an_overflow_and_forget_it(void **state)
{
    (void)state;
    engine_run(2, NULL, overflow, NULL);
}

/* ---- On sets, and with joined ranks ---------------------------------------------------------- */

static void on_a_set(engine_rank_t *self)
{
    dtrain_pset_t pset;
    dt_codec_t codec;
    int ranks[2] = {2, 0};
    ENGINE_OK(self, dt_codec_make("int8", &codec));
    ENGINE_OK(self, engine_pset_add(self, ranks, 2, &pset));
    float x[5] = {127, 2, 3, 4, (float)self->rank};
    if (self->rank != 1) {
        engine_op_t op = {
            .name = "x", .in = x, .out = x, .count = 5, .pset = pset, .codec = &codec.base};
        ENGINE_OK(self, engine_do(self, &op));
        ENGINE_CHECK(self, x[0] == 254 && fabsf(x[4] - 2) < 0.1f);
    }
    ENGINE_OK(self, engine_pset_remove(self, pset));
}

static void test_engine_codecs_work_on_process_sets(void **state)
{
    (void)state;
    engine_run(3, NULL, on_a_set, NULL);
}

static void without_the_joined(engine_rank_t *self)
{
    dt_codec_t codec;
    int last;
    for (int i = 0; i < 3; i++) {
        const char *codecs[] = {"int8", "topk:1", "bf16"};
        ENGINE_OK(self, dt_codec_make(codecs[i], &codec));
        float x[3] = {127, -127, 0}, y[3] = {127, -127, 0};
        engine_op_t op = {.name = "x", .in = x, .out = x, .count = 3, .codec = &codec.base};
        ENGINE_OK(self, engine_do(self, &op)); /* all of them */
        ENGINE_CHECK(self, fabsf(x[0] - (float)(127 * self->size)) <= 1);
        engine_meet(self);
        if (self->rank != 1) {
            engine_op_t after = {.name = "y",
                                 .op = DTRAIN_OP_AVERAGE,
                                 .in = y,
                                 .out = y,
                                 .count = 3,
                                 .codec = &codec.base};
            ENGINE_OK(self, engine_do(self, &after));
            ENGINE_CHECK(self, y[0] == 127 && y[1] == -127);
        }
        ENGINE_OK(self, engine_join(self, 0, &last));
    }
}

static void test_engine_codecs_go_on_without_ranks_that_have_joined(void **state)
{
    (void)state;
    engine_run(3, NULL, without_the_joined, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_codecs_are_as_defined_at_every_step),
        cmocka_unit_test(test_engine_codecs_of_16_bits_round_before_and_after),
        cmocka_unit_test(test_engine_codecs_give_the_same_bits_fused_and_unfused),
        cmocka_unit_test(test_engine_codecs_with_feedback_lose_nothing),
        cmocka_unit_test(test_engine_codecs_feedback_begins_anew_with_another_shape),
        cmocka_unit_test(test_engine_codecs_pass_on_an_overflow_and_forget_it),
        cmocka_unit_test(test_engine_codecs_work_on_process_sets),
        cmocka_unit_test(test_engine_codecs_go_on_without_ranks_that_have_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
