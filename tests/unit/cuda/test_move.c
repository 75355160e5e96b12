/* The kernels that move tensors into and out of a fusion buffer, compiled for the host, against one
 * element at a time: random sizes, misaligned tensors, all types. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dtrain/dtrain.h>

#include "kernels_host.h"
#include "move_plan.h"
#include "reduce/half.h"

#define TENSORS_MAX 3000

/* A tensor in memory of its own size, so that a sanitizer sees what lies beside it. */
typedef struct tensor {
    char *memory; /* `skew` bytes before the first element */
    int skew;
    int64_t count;
} tensor_t;

typedef struct set {
    tensor_t tensors[TENSORS_MAX];
    dt_move_item_t items[TENSORS_MAX];
    int n;
    int element;        /* bytes, in the tensors */
    int buffer_element; /* bytes, in the buffer */
    char *buffer;
    int64_t buffer_bytes;
} set_t;

static uint64_t state;

static uint64_t next_random(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static char *first_of(const tensor_t *tensor)
{
    return tensor->memory + tensor->skew;
}

/* Half of the tensors are as long as a few words, some longer than a chunk. */
static int64_t random_count(void)
{
    switch (next_random() % 8) {
    case 0:
        return 0;
    case 1:
        return (int64_t)(next_random() % 40000);
    case 2:
    case 3:
        return (int64_t)(next_random() % 600);
    default:
        return (int64_t)(next_random() % 40);
    }
}

static void make_set(set_t *set, int n, int element, int buffer_element)
{
    set->n = n;
    set->element = element;
    set->buffer_element = buffer_element;
    for (int i = 0; i < n; i++) {
        tensor_t *tensor = &set->tensors[i];
        tensor->skew = (int)(next_random() % (size_t)(32 / element)) * element;
        tensor->count = random_count();
        size_t bytes = (size_t)tensor->skew + (size_t)(tensor->count * element);
        tensor->memory = aligned_alloc(32, (bytes + 32) / 32 * 32);
        assert_non_null(tensor->memory);
        for (size_t k = 0; k < bytes; k++)
            tensor->memory[k] = (char)next_random();
        set->items[i] = (dt_move_item_t){.tensor = first_of(tensor), .count = tensor->count};
    }
    set->buffer_bytes = dt_move_bytes(set->items, n, buffer_element);
    assert_true(set->buffer_bytes >= 0);
    set->buffer = aligned_alloc(DT_MOVE_ALIGNMENT, (size_t)set->buffer_bytes + DT_MOVE_ALIGNMENT);
    assert_non_null(set->buffer);
    memset(set->buffer, 0xa5, (size_t)set->buffer_bytes + DT_MOVE_ALIGNMENT);
}

static void free_set(set_t *set)
{
    for (int i = 0; i < set->n; i++)
        free(set->tensors[i].memory);
    free(set->buffer);
}

/* Moves all in as many launches as it takes; returns how many these were. */
static int move_few(const set_t *set, dt_kernel_t kernel, const dt_move_head_t *head)
{
    dt_move_few_t args = {.head = *head};
    int next = 0, launches = 0;
    uint32_t place = 0;
    while (dt_move_fill(&args.head, args.entries, DT_MOVE_FEW, set->buffer_element, set->items,
                        set->n, &next, &place) > 0) {
        dt_kernel_run_on_host(kernel, &args, 1 + (uint32_t)(next_random() % 7));
        launches++;
    }
    return launches;
}

static int move_many(const set_t *set, dt_kernel_t kernel, const dt_move_head_t *head)
{
    static dt_move_many_t args;
    int next = 0, launches = 0;
    uint32_t place = 0;
    args.head = *head;
    while (dt_move_fill(&args.head, args.entries, DT_MOVE_MANY, set->buffer_element, set->items,
                        set->n, &next, &place) > 0) {
        dt_kernel_run_on_host(kernel, &args, 1 + (uint32_t)(next_random() % 7));
        launches++;
    }
    return launches;
}

static dt_move_head_t make_head(const set_t *set, int unpacks)
{
    return (dt_move_head_t){.buffer = set->buffer,
                            .unpacks = unpacks,
                            .element_bytes = set->element,
                            .divisor = 1,
                            .scale = 1};
}

/* Where item i lies in the buffer. */
static char *place_of(const set_t *set, int i)
{
    return set->buffer + dt_move_bytes(set->items, i, set->buffer_element);
}

/* Zeros behind each tensor, and nothing behind the buffer. */
static void check_padding(const set_t *set)
{
    for (int i = 0; i < set->n; i++) {
        size_t bytes = (size_t)(set->tensors[i].count * set->buffer_element);
        for (; bytes % DT_MOVE_ALIGNMENT != 0; bytes++)
            assert_int_equal(place_of(set, i)[bytes], 0);
    }
    for (int k = 0; k < DT_MOVE_ALIGNMENT; k++)
        assert_int_equal((uint8_t)set->buffer[set->buffer_bytes + k], 0xa5);
}

static void check_packed_bytes(const set_t *set)
{
    for (int i = 0; i < set->n; i++)
        assert_memory_equal(place_of(set, i), first_of(&set->tensors[i]),
                            (size_t)(set->tensors[i].count * set->element));
    check_padding(set);
}

static void test_move_copy_of_misaligned_tensors_is_exact_and_pads_with_zeros(void **unused)
{
    static set_t set;
    (void)unused;
    state = 1;
    for (int round = 0; round < 40; round++) {
        make_set(&set, 1 + (int)(next_random() % 90), 1 << round % 4, 1 << round % 4);
        dt_move_head_t head = make_head(&set, 0);
        move_few(&set, DT_KERNEL_MOVE_COPY_FEW, &head);
        check_packed_bytes(&set);
        free_set(&set);
    }
}

static void test_move_unpack_gives_back_what_was_packed(void **unused)
{
    static set_t set;
    (void)unused;
    state = 2;
    for (int round = 0; round < 20; round++) {
        make_set(&set, 1 + (int)(next_random() % 90), 1 << round % 4, 1 << round % 4);
        dt_move_head_t in = make_head(&set, 0), out = make_head(&set, 1);
        move_few(&set, DT_KERNEL_MOVE_COPY_FEW, &in);
        for (int i = 0; i < set.n; i++)
            memset(first_of(&set.tensors[i]), 0, (size_t)(set.tensors[i].count * set.element));
        move_few(&set, DT_KERNEL_MOVE_COPY_FEW, &out);
        check_packed_bytes(&set);
        free_set(&set);
    }
}

static void test_move_thousands_of_tensors_take_few_launches(void **unused)
{
    static set_t set;
    (void)unused;
    state = 3;
    make_set(&set, TENSORS_MAX, 4, 4);
    dt_move_head_t head = make_head(&set, 0);
    assert_in_range(move_many(&set, DT_KERNEL_MOVE_COPY_MANY, &head), 1, 3);
    check_packed_bytes(&set);
    free_set(&set);
}

static void test_move_nothing_takes_no_launch(void **unused)
{
    static set_t set;
    (void)unused;
    make_set(&set, 0, 4, 4);
    dt_move_head_t head = make_head(&set, 0);
    assert_int_equal(move_few(&set, DT_KERNEL_MOVE_COPY_FEW, &head), 0);
    set.n = 3;
    memset(set.items, 0, sizeof set.items[0] * 3);
    assert_int_equal(move_few(&set, DT_KERNEL_MOVE_COPY_FEW, &head), 0);
    set.n = 0;
    free_set(&set);
}

static void test_move_bytes_beyond_the_address_are_refused(void **unused)
{
    dt_move_item_t items[2] = {{.count = INT64_MAX / 8}, {.count = 1}};
    (void)unused;
    assert_true(dt_move_bytes(items, 2, 4) < 0);
    items[0].count = 100;
    assert_int_equal(dt_move_bytes(items, 2, 4), 512 + 128);
}

static void test_move_counts_of_more_than_32_bits_are_laid_out_in_full(void **unused)
{
    const int64_t count = (int64_t)3 << 31, bytes = 8 * count;
    const dt_move_item_t items[2] = {{.count = count}, {.count = 5}};
    dt_move_head_t head = {.divisor = 1};
    dt_move_entry_t entries[2];
    int next = 0;
    uint32_t place = 0;
    (void)unused;
    assert_true(dt_move_bytes(items, 2, 8) == bytes + DT_MOVE_ALIGNMENT);
    assert_int_equal(dt_move_fill(&head, entries, 2, 8, items, 2, &next, &place), 2);
    assert_true(entries[0].count == count);
    assert_true(entries[1].place == bytes / DT_MOVE_ALIGNMENT);
    assert_true(entries[1].first_chunk == bytes / DT_MOVE_CHUNK_BYTES);
    assert_true(head.num_chunks == entries[1].first_chunk + 1);
    assert_true(place == entries[1].place + 1);
}

/* ---- Scales --------------------------------------------------------------------------------- */

static double load(dtrain_dtype_t dtype, const char *from)
{
    switch (dtype) {
    case DTRAIN_DTYPE_F16:
        return dt_f16_to_f32(*(const uint16_t *)(const void *)from);
    case DTRAIN_DTYPE_BF16:
        return dt_bf16_to_f32(*(const uint16_t *)(const void *)from);
    case DTRAIN_DTYPE_F32:
        return *(const float *)(const void *)from;
    default:
        return *(const double *)(const void *)from;
    }
}

/* As dt_reduce does it: in fp32, but for doubles. */
static void store_scaled(dtrain_dtype_t dtype, char *to, double value, double divisor, double scale)
{
    float narrow = (float)value / (float)divisor;
    narrow *= (float)scale;
    uint16_t half = dtype == DTRAIN_DTYPE_F16 ? dt_f32_to_f16(narrow) : dt_f32_to_bf16(narrow);
    double wide = value / divisor * scale;
    if (dtype == DTRAIN_DTYPE_F64)
        memcpy(to, &wide, sizeof wide);
    else if (dtype == DTRAIN_DTYPE_F32)
        memcpy(to, &narrow, sizeof narrow);
    else
        memcpy(to, &half, sizeof half);
}

/* Each element of what was moved, from type to type. */
static void check_scaled(const set_t *set, int unpacks, dtrain_dtype_t from_dtype,
                         dtrain_dtype_t to_dtype, double divisor, double scale)
{
    for (int i = 0; i < set->n; i++) {
        for (int64_t k = 0; k < set->tensors[i].count; k++) {
            const char *in_tensor = first_of(&set->tensors[i]) + k * set->element;
            const char *in_buffer = place_of(set, i) + k * set->buffer_element;
            const char *got = unpacks ? in_tensor : in_buffer;
            char wanted[8];
            double value = load(from_dtype, unpacks ? in_buffer : in_tensor);
            store_scaled(to_dtype, wanted, value, divisor, scale);
            if (isnan(load(to_dtype, wanted)))
                assert_true(isnan(load(to_dtype, got)));
            else
                assert_memory_equal(got, wanted,
                                    (size_t)(unpacks ? set->element : set->buffer_element));
        }
    }
}

static void test_move_scales_in_fp32_and_rounds_once(void **unused)
{
    static const struct {
        dtrain_dtype_t dtype;
        dt_kernel_t kernel;
        int bytes;
    } types[] = {{DTRAIN_DTYPE_F16, DT_KERNEL_MOVE_F16_FEW, 2},
                 {DTRAIN_DTYPE_BF16, DT_KERNEL_MOVE_BF16_FEW, 2},
                 {DTRAIN_DTYPE_F32, DT_KERNEL_MOVE_F32_FEW, 4},
                 {DTRAIN_DTYPE_F64, DT_KERNEL_MOVE_F64_FEW, 8}};
    static set_t set;
    (void)unused;
    state = 4;
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        make_set(&set, 30, types[t].bytes, types[t].bytes);
        dt_move_head_t head = make_head(&set, 0);
        head.divisor = 3;
        head.scale = 0.7;
        move_few(&set, types[t].kernel, &head);
        check_scaled(&set, 0, types[t].dtype, types[t].dtype, 3, 0.7);
        free_set(&set);
    }
}

/* ---- Rounding ------------------------------------------------------------------------------- */

static const struct {
    dtrain_dtype_t dtype;
    dt_kernel_t kernel;
} roundings[] = {{DTRAIN_DTYPE_F16, DT_KERNEL_MOVE_ROUNDED_F16_FEW},
                 {DTRAIN_DTYPE_BF16, DT_KERNEL_MOVE_ROUNDED_BF16_FEW}};

/* Values that both types hold roughly. */
static void fill_floats(set_t *set)
{
    for (int i = 0; i < set->n; i++) {
        for (int64_t k = 0; k < set->tensors[i].count; k++) {
            float value = ((float)(next_random() % 20001) - 10000.0f) / 77.0f;
            memcpy(first_of(&set->tensors[i]) + k * 4, &value, sizeof value);
        }
    }
}

static void test_move_floats_are_scaled_and_rounded_to_16_bits_once(void **unused)
{
    static set_t set;
    (void)unused;
    state = 5;
    for (size_t t = 0; t < sizeof roundings / sizeof roundings[0]; t++) {
        make_set(&set, 30, 4, 2);
        fill_floats(&set);
        dt_move_head_t head = make_head(&set, 0);
        head.divisor = 3;
        head.scale = 0.7;
        move_few(&set, roundings[t].kernel, &head);
        check_scaled(&set, 0, DTRAIN_DTYPE_F32, roundings[t].dtype, 3, 0.7);
        check_padding(&set);
        free_set(&set);
    }
}

static void test_move_16_bits_are_widened_and_scaled(void **unused)
{
    static set_t set;
    (void)unused;
    state = 6;
    for (size_t t = 0; t < sizeof roundings / sizeof roundings[0]; t++) {
        make_set(&set, 30, 4, 2);
        fill_floats(&set);
        dt_move_head_t head = make_head(&set, 0);
        move_few(&set, roundings[t].kernel, &head);
        head = make_head(&set, 1);
        head.divisor = 3;
        head.scale = 0.7;
        move_few(&set, roundings[t].kernel, &head);
        check_scaled(&set, 1, roundings[t].dtype, DTRAIN_DTYPE_F32, 3, 0.7);
        free_set(&set);
    }
}

/* ---- Integers ------------------------------------------------------------------------------- */

static void move_one(void *tensor, int element, dtrain_dtype_t dtype, int64_t count, void *buffer,
                     dtrain_dtype_t buffer_dtype, int unpacks, double divisor, double scale)
{
    dt_move_few_t args = {.head = {.buffer = buffer,
                                   .unpacks = unpacks,
                                   .tensor_dtype = (int32_t)dtype,
                                   .buffer_dtype = (int32_t)buffer_dtype,
                                   .divisor = divisor,
                                   .scale = scale}};
    dt_move_item_t item = {.tensor = tensor, .count = count};
    int next = 0;
    uint32_t place = 0;
    assert_int_equal(
        dt_move_fill(&args.head, args.entries, DT_MOVE_FEW, element, &item, 1, &next, &place), 1);
    dt_kernel_run_on_host(DT_KERNEL_MOVE_INTEGERS_FEW, &args, 2);
}

static void test_move_integers_average_truncates_towards_zero(void **unused)
{
    int8_t values[4] = {-7, 7, -128, 127}, out[4];
    _Alignas(DT_MOVE_ALIGNMENT) int64_t buffer[16];
    (void)unused;
    move_one(values, 8, DTRAIN_DTYPE_I8, 4, buffer, DTRAIN_DTYPE_I64, 0, 1, 1);
    assert_int_equal(buffer[2], -128);
    assert_int_equal(buffer[4], 0); /* padding */
    for (int i = 0; i < 4; i++)
        buffer[i] *= 3;
    buffer[0] = -7;
    buffer[1] = 8;
    move_one(out, 8, DTRAIN_DTYPE_I8, 4, buffer, DTRAIN_DTYPE_I64, 1, 3, 1);
    assert_int_equal(out[0], -2);
    assert_int_equal(out[1], 2);
    assert_int_equal(out[2], -128);
    assert_int_equal(out[3], 127);
}

static void test_move_integers_scaled_beyond_the_type_saturate(void **unused)
{
    _Alignas(DT_MOVE_ALIGNMENT) int64_t buffer[16] = {1000, -1000, 3, -3};
    uint8_t small[4];
    int16_t wide[4];
    (void)unused;
    move_one(small, 8, DTRAIN_DTYPE_U8, 4, buffer, DTRAIN_DTYPE_I64, 1, 1, 2.5);
    assert_int_equal(small[0], 255);
    assert_int_equal(small[1], 0);
    assert_int_equal(small[2], 7);
    move_one(wide, 8, DTRAIN_DTYPE_I16, 4, buffer, DTRAIN_DTYPE_I64, 1, 1, 100);
    assert_int_equal(wide[0], INT16_MAX);
    assert_int_equal(wide[1], INT16_MIN);
    assert_int_equal(wide[3], -300);
}

static void test_move_booleans_become_zero_or_one(void **unused)
{
    uint8_t values[5] = {0, 1, 2, 255, 0}, out[5];
    _Alignas(DT_MOVE_ALIGNMENT) uint8_t buffer[128];
    (void)unused;
    move_one(values, 1, DTRAIN_DTYPE_BOOL, 5, buffer, DTRAIN_DTYPE_U8, 0, 1, 1);
    const uint8_t wanted[5] = {0, 1, 1, 1, 0};
    assert_memory_equal(buffer, wanted, 5);
    move_one(out, 1, DTRAIN_DTYPE_BOOL, 5, buffer, DTRAIN_DTYPE_U8, 1, 1, 1);
    assert_memory_equal(out, wanted, 5);
}

static void test_move_sixteen_bit_integers_travel_as_thirty_two(void **unused)
{
    uint16_t values[3] = {65535, 1, 40000}, out[3];
    _Alignas(DT_MOVE_ALIGNMENT) int32_t buffer[32];
    (void)unused;
    move_one(values, 4, DTRAIN_DTYPE_U16, 3, buffer, DTRAIN_DTYPE_I32, 0, 1, 1);
    for (int i = 0; i < 3; i++)
        buffer[i] *= 2;
    move_one(out, 4, DTRAIN_DTYPE_U16, 3, buffer, DTRAIN_DTYPE_I32, 1, 1, 1);
    assert_int_equal(out[0], 65534); /* sums wrap */
    assert_int_equal(out[1], 2);
    assert_int_equal(out[2], 14464);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_move_copy_of_misaligned_tensors_is_exact_and_pads_with_zeros),
        cmocka_unit_test(test_move_unpack_gives_back_what_was_packed),
        cmocka_unit_test(test_move_thousands_of_tensors_take_few_launches),
        cmocka_unit_test(test_move_nothing_takes_no_launch),
        cmocka_unit_test(test_move_bytes_beyond_the_address_are_refused),
        cmocka_unit_test(test_move_counts_of_more_than_32_bits_are_laid_out_in_full),
        cmocka_unit_test(test_move_scales_in_fp32_and_rounds_once),
        cmocka_unit_test(test_move_floats_are_scaled_and_rounded_to_16_bits_once),
        cmocka_unit_test(test_move_16_bits_are_widened_and_scaled),
        cmocka_unit_test(test_move_integers_average_truncates_towards_zero),
        cmocka_unit_test(test_move_integers_scaled_beyond_the_type_saturate),
        cmocka_unit_test(test_move_booleans_become_zero_or_one),
        cmocka_unit_test(test_move_sixteen_bit_integers_travel_as_thirty_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
