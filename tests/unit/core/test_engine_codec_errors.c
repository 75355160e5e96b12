/* Codecs that ranks do not agree on, or that cannot be: an error on every rank, and the next
 * operation of the same name works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/status.h"
#include "engine_world.h"
#include "reduce/codec.h"

static int64_t plain_bytes(const dtrain_codec_t *codec, int64_t count)
{
    (void)codec;
    return 4 * count;
}

static int64_t double_bytes(const dtrain_codec_t *codec, int64_t count)
{
    (void)codec;
    return 8 * count;
}

static int64_t no_bytes(const dtrain_codec_t *codec, int64_t count)
{
    (void)codec;
    (void)count;
    return -1;
}

static void plain_encode(const dtrain_codec_t *codec, const float *in, int64_t count, void *out)
{
    (void)codec;
    memcpy(out, in, (size_t)count * sizeof *in);
}

static int plain_decode(const dtrain_codec_t *codec, const void *in, int64_t count, float *out)
{
    (void)codec;
    memcpy(out, in, (size_t)count * sizeof *out);
    return 0;
}

static int no_decode(const dtrain_codec_t *codec, const void *in, int64_t count, float *out)
{
    (void)codec;
    (void)in;
    (void)count;
    (void)out;
    return -1;
}

static const dtrain_codec_t plain = {.struct_size = sizeof plain,
                                     .name = "plain",
                                     .coded_bytes = plain_bytes,
                                     .encode = plain_encode,
                                     .decode = plain_decode};

/* What the last rank says instead of the others' int8, of which all hear. */
typedef struct slip {
    const char *name;          /* of a codec of the library's; NULL: `own` */
    const dtrain_codec_t *own; /* or NULL: no codec */
    const char *others;        /* codec of the others; NULL: `plain` */
    dtrain_status_t status;    /* on all */
    const char *texts[3];
} slip_t;

static const dtrain_codec_t longer = {.struct_size = sizeof plain,
                                      .name = "plain",
                                      .coded_bytes = double_bytes,
                                      .encode = plain_encode,
                                      .decode = plain_decode};
static const dtrain_codec_t impossible = {.struct_size = sizeof plain,
                                          .name = "impossible",
                                          .coded_bytes = no_bytes,
                                          .encode = plain_encode,
                                          .decode = plain_decode};
static const dtrain_codec_t usurper = {.struct_size = sizeof plain,
                                       .name = "topk:0.5",
                                       .coded_bytes = plain_bytes,
                                       .encode = plain_encode,
                                       .decode = plain_decode};
static const dtrain_codec_t nameless = {.struct_size = sizeof plain,
                                        .coded_bytes = plain_bytes,
                                        .encode = plain_encode,
                                        .decode = plain_decode};
static const dtrain_codec_t half_made = {.struct_size = sizeof plain, .name = "half-made"};
static const dtrain_codec_t flagged = {.struct_size = sizeof plain,
                                       .flags = 6,
                                       .name = "flagged",
                                       .coded_bytes = plain_bytes,
                                       .encode = plain_encode,
                                       .decode = plain_decode};
static const dtrain_codec_t unsized = {.name = "unsized"};

static const slip_t slips[] = {
    {NULL, NULL, "int8", DTRAIN_ERR_MISMATCH, {"'x'", "int8 (12 bytes)", "none"}},
    {"fp16", NULL, "int8", DTRAIN_ERR_MISMATCH, {"codec", "int8 (12 bytes)", "fp16 (16 bytes)"}},
    {"topk:0.1", NULL, "topk", DTRAIN_ERR_MISMATCH, {"'x'", "topk:0.01 (8", "topk:0.1 (8"}},
    {NULL, &longer, NULL, DTRAIN_ERR_MISMATCH, {"plain (32 bytes)", "plain (64 bytes)", "rank"}},
    {NULL, &impossible, NULL, DTRAIN_ERR_UNSUPPORTED, {"'x'", "impossible", "so many elements"}},
    {NULL, &usurper, "topk:0.5", DTRAIN_ERR_INVALID_ARGUMENT, {"topk:0.5", "own codecs", "rank"}},
    {NULL, &nameless, NULL, DTRAIN_ERR_INVALID_ARGUMENT, {"'x'", "needs a name", "rank"}},
    {NULL, &half_made, NULL, DTRAIN_ERR_INVALID_ARGUMENT, {"half-made", "must be set", "rank"}},
    {NULL, &flagged, NULL, DTRAIN_ERR_INVALID_ARGUMENT, {"flagged", "0x6", "no flags"}},
    {NULL, &unsized, NULL, DTRAIN_ERR_INVALID_ARGUMENT, {"struct_size is 0", "sizeof", "rank"}},
};

static void slip(engine_rank_t *self)
{
    for (size_t i = 0; i < sizeof slips / sizeof slips[0]; i++) {
        const slip_t *slip = &slips[i];
        int slips_here = self->rank == self->size - 1;
        const char *name = slips_here ? slip->name : slip->others;
        const dtrain_codec_t *codec = slips_here ? slip->own : &plain;
        dt_codec_t own;
        if (name) {
            ENGINE_OK(self, dt_codec_make(name, &own));
            codec = &own.base;
        }
        float x[8] = {1};
        engine_op_t op = {.name = "x", .in = x, .out = x, .count = 8, .codec = codec};
        ENGINE_STATUS(self, engine_do(self, &op), slip->status);
        for (int t = 0; t < 3; t++) {
            if (!slips_here || strcmp(slip->texts[t], "rank") != 0)
                ENGINE_TEXT(self, dt_last_error(), slip->texts[t]);
        }
        engine_meet(self);
        engine_check_works(self, "x");
        engine_meet(self);
    }
}

static void test_engine_codecs_that_differ_or_cannot_be_fail_on_all_ranks(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++)
        engine_run(size, NULL, slip, NULL);
}

static void misuse(engine_rank_t *self)
{
    dt_codec_t own;
    ENGINE_OK(self, dt_codec_make("int8", &own));
    double x[8] = {0}, out[8];
    const engine_op_t ops[] = {
        {.name = "x", .dtype = DTRAIN_DTYPE_F64},
        {.name = "x", .op = DTRAIN_OP_MAX},
        {.name = "x", .op = DTRAIN_OP_ADASUM},
        {.name = "x", .kind = DT_KIND_BROADCAST},
        {.name = "x", .kind = DT_KIND_REDUCESCATTER},
        {.name = "x", .kind = DT_KIND_ALLGATHER, .out_bytes = sizeof out},
    };
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        engine_op_t op = ops[i];
        op.in = x;
        op.out = out;
        op.count = 2;
        op.codec = &own.base;
        ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_UNSUPPORTED);
        ENGINE_TEXT(self, dt_last_error(), "codec int8");
        engine_meet(self);
        engine_check_works(self, "x");
        engine_meet(self);
    }
}

static void test_engine_codecs_are_unsupported_where_they_have_no_sense(void **state)
{
    (void)state;
    engine_run(2, NULL, misuse, NULL);
}

/* The library does not know a program's own codec where a rank has joined. */
static void own_and_joined(engine_rank_t *self)
{
    int last;
    if (self->rank > 0) {
        float x[8] = {1};
        engine_op_t op = {.name = "x", .in = x, .out = x, .count = 8, .codec = &plain};
        ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "codec plain is the program's own");
    }
    ENGINE_OK(self, engine_join(self, 0, &last));
    engine_check_works(self, "x");
}

static void test_engine_codec_of_the_program_needs_all_ranks(void **state)
{
    (void)state;
    engine_run(3, NULL, own_and_joined, NULL);
}

/* What cannot be decoded ends the world on all ranks. */
static void cannot_decode(engine_rank_t *self)
{
    dtrain_codec_t codec = plain;
    if (self->rank == 1)
        codec.decode = no_decode;
    float *x = engine_buffer(self, 8 * sizeof *x);
    engine_op_t op = {.name = "x", .in = x, .out = x, .count = 8, .codec = &codec};
    ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INTERNAL);
    ENGINE_TEXT(self, dt_last_error(), "rank 1: allreduce 'x': codec plain cannot decode");
    self->end = DTRAIN_ERR_INTERNAL;
    engine_meet(self); /* the codec is on this stack */
}

static void test_engine_codec_that_cannot_decode_ends_the_world(void **state)
{
    (void)state;
    engine_run(3, NULL, cannot_decode, NULL);
}

/* A caller that was built before there were codecs. */
static void with_old_options(engine_rank_t *self)
{
    float x[2] = {1, 2};
    int64_t shape = 2;
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 1,
                              .name = "x",
                              .in = x,
                              .out = x,
                              .shape = &shape,
                              .dtype = DTRAIN_DTYPE_F32};
    dtrain_options_t options = {.struct_size = offsetof(dtrain_options_t, codec),
                                .op = DTRAIN_OP_AVERAGE,
                                .codec = (const dtrain_codec_t *)(uintptr_t)1};
    dt_submission_t submission = {
        .kind = DT_KIND_ALLREDUCE, .tensor = &tensor, .options = &options};
    dtrain_handle_t handle;
    ENGINE_OK(self, dt_runtime_submit(self->runtime, &submission, &handle));
    ENGINE_OK(self, engine_finish(self, handle));
    ENGINE_CHECK(self, x[1] == 2);
}

static void test_engine_codec_is_not_looked_for_in_older_options(void **state)
{
    (void)state;
    engine_run(2, NULL, with_old_options, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_codecs_that_differ_or_cannot_be_fail_on_all_ranks),
        cmocka_unit_test(test_engine_codecs_are_unsupported_where_they_have_no_sense),
        cmocka_unit_test(test_engine_codec_of_the_program_needs_all_ranks),
        cmocka_unit_test(test_engine_codec_that_cannot_decode_ends_the_world),
        cmocka_unit_test(test_engine_codec_is_not_looked_for_in_older_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
