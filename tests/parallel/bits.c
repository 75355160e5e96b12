/*
 * bits.c - reduces random floats of a wide range of sizes in many ways, and prints one line a way:
 *
 *     float32 sum | threshold 65536, mixed order, library buffers | 0123456789abcdef
 *
 * The middle says how, the end is a checksum of all results' bits, the same on all ranks (that is
 * checked here). Lines that begin alike have to end alike; test_bits.py compares them. Lines with
 * "reference" are computed without communication, along the tree over rank numbers that dtrain.h
 * promises.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* From one element to more than a chunk of any path; around and above what is packed by default. */
static const int64_t counts[] = {1, 3, 17, 64, 1000, 4097, 20011, 32768, 32769, 150001};
#define NUM_TENSORS ((int)(sizeof counts / sizeof counts[0]))
#define MAX_COUNT 150001

typedef struct kind {
    dtrain_dtype_t dtype;
    dtrain_op_t op;
    double prescale, postscale;
    const char *text;
} kind_t;

static const kind_t kinds[] = {
    {DTRAIN_DTYPE_F32, DTRAIN_OP_SUM, 0, 0, "float32 sum"},
    {DTRAIN_DTYPE_F64, DTRAIN_OP_SUM, 0, 0, "float64 sum"},
    {DTRAIN_DTYPE_F32, DTRAIN_OP_AVERAGE, 0, 0, "float32 average"},
    {DTRAIN_DTYPE_F32, DTRAIN_OP_SUM, 0.3, 1.7, "float32 scaled sum"},
    {DTRAIN_DTYPE_F32, DTRAIN_OP_PRODUCT, 0, 0, "float32 product"},
    {DTRAIN_DTYPE_F16, DTRAIN_OP_SUM, 0, 0, "float16 sum"},
    {DTRAIN_DTYPE_BF16, DTRAIN_OP_AVERAGE, 0, 0, "bfloat16 average"},
    {DTRAIN_DTYPE_I32, DTRAIN_OP_AVERAGE, 0, 0, "int32 average"},
};
#define NUM_KINDS ((int)(sizeof kinds / sizeof kinds[0]))
#define NUM_REFERENCES 2 /* the first kinds, of which a plain tree of additions is the result */
#define REFERENCE_RANKS_MAX 64

typedef struct way {
    int64_t threshold; /* of fusion; 0: the default, -1: none */
    int is_mixed;      /* odd ranks submit in reverse */
    int is_library;    /* buffers from dtrain_mem_alloc */
    int is_in_place;
} way_t;

static const way_t ways[] = {
    {0, 0, 0, 1},    {0, 1, 1, 1},     {-1, 0, 0, 0},    {-1, 1, 1, 0},      {1024, 1, 0, 1},
    {1024, 0, 1, 0}, {65536, 1, 1, 1}, {65536, 0, 0, 0}, {1 << 28, 1, 0, 1}, {1 << 28, 0, 1, 0},
};
#define NUM_WAYS ((int)(sizeof ways / sizeof ways[0]))

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 31)) * 0x9fb21c651e98df25u;
    x = (x ^ (x >> 29)) * 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

/*
 * The element of a rank: a random sign and fraction, and an exponent from a range so wide that
 * every order of addition rounds differently, yet no sum or product of eight ranks overflows.
 */
static void put(char *at, dtrain_dtype_t dtype, int rank, int tensor, int64_t i)
{
    uint64_t random = mix(mix((uint64_t)rank * 64 + (uint64_t)tensor + 1) ^ (uint64_t)i);
    uint64_t sign = random >> 63;
    unsigned range = (unsigned)(random >> 52) & 0x7ff;
    uint32_t single =
        (uint32_t)(sign << 31 | (uint64_t)(115 + range % 24) << 23 | (random & 0x7fffff));
    uint64_t wide =
        sign << 63 | (uint64_t)(1023 - 30 + range % 60) << 52 | (random & 0xfffffffffffff);
    uint16_t brain = (uint16_t)(single >> 16);
    uint16_t half = (uint16_t)(sign << 15 | (uint64_t)(5 + range % 20) << 10 | (random & 0x3ff));
    int32_t integer = (int32_t)(random >> 20);
    if (dtype == DTRAIN_DTYPE_F32)
        memcpy(at, &single, sizeof single);
    else if (dtype == DTRAIN_DTYPE_F64)
        memcpy(at, &wide, sizeof wide);
    else if (dtype == DTRAIN_DTYPE_BF16)
        memcpy(at, &brain, sizeof brain);
    else if (dtype == DTRAIN_DTYPE_F16)
        memcpy(at, &half, sizeof half);
    else
        memcpy(at, &integer, sizeof integer);
}

static void fill(char *buffer, dtrain_dtype_t dtype, int rank, int tensor)
{
    size_t bytes = dtrain_dtype_size(dtype);
    for (int64_t i = 0; i < counts[tensor]; i++)
        put(buffer + (size_t)i * bytes, dtype, rank, tensor, i);
}

static uint64_t add_to_checksum(uint64_t sum, const char *buffer, size_t bytes)
{
    for (; bytes >= 8; bytes -= 8, buffer += 8) {
        uint64_t word;
        memcpy(&word, buffer, sizeof word);
        sum = mix(sum ^ word) + 1;
    }
    for (; bytes > 0; bytes--, buffer++)
        sum = mix(sum ^ (unsigned char)*buffer) + 1;
    return sum;
}

/* ---- With dtrain ------------------------------------------------------------------------- */

static char *in[NUM_TENSORS], *out[NUM_TENSORS];

static char *allocate(int is_library)
{
    void *memory = NULL;
    size_t bytes = MAX_COUNT * sizeof(double);
    if (is_library)
        CHECK_OK(dtrain_mem_alloc(&memory, bytes, DTRAIN_DEVICE_CPU));
    else
        memory = malloc(bytes);
    if (!memory) {
        fprintf(stderr, "FAILED: no memory\n");
        exit(1);
    }
    return memory;
}

static void give_back(char *memory, int is_library)
{
    if (is_library)
        CHECK_OK(dtrain_mem_free(memory));
    else
        free(memory);
}

static dtrain_handle_t submit(const kind_t *kind, int t)
{
    char name[64];
    snprintf(name, sizeof name, "%s %d", kind->text, t);
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 1,
                              .name = name,
                              .in = in[t],
                              .out = out[t],
                              .shape = &counts[t],
                              .dtype = kind->dtype};
    dtrain_options_t options = {.struct_size = sizeof options,
                                .op = kind->op,
                                .prescale = kind->prescale,
                                .postscale = kind->postscale};
    dtrain_handle_t handle = 0;
    CHECK_OK(dtrain_allreduce_async(&tensor, &options, &handle));
    return handle;
}

/* The checksum of the results of all tensors. */
static uint64_t reduce(const kind_t *kind, int is_mixed)
{
    dtrain_handle_t handles[NUM_TENSORS];
    int is_reversed = is_mixed && dtrain_rank() % 2;
    for (int t = 0; t < NUM_TENSORS; t++)
        fill(in[t], kind->dtype, dtrain_rank(), t);
    for (int i = 0; i < NUM_TENSORS; i++) {
        int t = is_reversed ? NUM_TENSORS - 1 - i : i;
        handles[t] = submit(kind, t);
    }
    uint64_t sum = 0;
    for (int t = 0; t < NUM_TENSORS; t++) {
        CHECK_OK(check_finish(handles[t]));
        sum = add_to_checksum(sum, out[t], (size_t)counts[t] * dtrain_dtype_size(kind->dtype));
    }
    return sum;
}

static void check_same_on_all_ranks(uint64_t sum)
{
    int64_t least = (int64_t)sum, most = (int64_t)sum;
    CHECK_OK(dtrain_allreduce("least", &least, &least, 1, DTRAIN_DTYPE_I64, DTRAIN_OP_MIN));
    CHECK_OK(dtrain_allreduce("most", &most, &most, 1, DTRAIN_DTYPE_I64, DTRAIN_OP_MAX));
    CHECK(least == most);
}

static void print(const kind_t *kind, const char *how, uint64_t sum)
{
    if (dtrain_rank() == 0)
        printf("%s | %s | %016llx\n", kind->text, how, (unsigned long long)sum);
}

static void try_way(const way_t *way)
{
    char how[96];
    dtrain_config_t config;
    CHECK_OK(dtrain_config_init(&config, sizeof config));
    config.fusion_threshold = way->threshold;
    config.fusion_tensor_limit = way->threshold;
    if (way->threshold < 0)
        config.fusion_tensor_limit = 0;
    if (!CHECK_OK(dtrain_init(&config)))
        exit(check_end());
    for (int t = 0; t < NUM_TENSORS; t++) {
        in[t] = allocate(way->is_library);
        out[t] = way->is_in_place ? in[t] : allocate(way->is_library);
    }
    snprintf(how, sizeof how, "threshold %lld, %s order, %s buffers, %s", (long long)way->threshold,
             way->is_mixed ? "mixed" : "same", way->is_library ? "library" : "private",
             way->is_in_place ? "in place" : "out of place");
    for (int k = 0; k < NUM_KINDS; k++) {
        uint64_t sum = reduce(&kinds[k], way->is_mixed);
        check_same_on_all_ranks(sum);
        print(&kinds[k], how, sum);
    }
    for (int t = 0; t < NUM_TENSORS; t++) {
        if (!way->is_in_place)
            give_back(out[t], way->is_library);
        give_back(in[t], way->is_library);
    }
    CHECK_OK(dtrain_shutdown());
}

/* ---- Without ----------------------------------------------------------------------------- */

/*
 * The sum of `n` values along the tree of dtrain.h: neighbours are paired, then pairs, and so on;
 * whoever has no neighbour goes up as it is.
 */
static double tree_sum(double *values, int n, int is_single)
{
    for (int step = 1; step < n; step *= 2) {
        for (int i = 0; i + step < n; i += 2 * step) {
            double sum = values[i] + values[i + step];
            values[i] = is_single ? (double)((float)values[i] + (float)values[i + step]) : sum;
        }
    }
    return values[0];
}

static uint64_t reference(const kind_t *kind, int size)
{
    int is_single = kind->dtype == DTRAIN_DTYPE_F32;
    size_t bytes = dtrain_dtype_size(kind->dtype);
    char *result = allocate(0);
    uint64_t sum = 0;
    for (int t = 0; t < NUM_TENSORS; t++) {
        for (int64_t i = 0; i < counts[t]; i++) {
            double values[REFERENCE_RANKS_MAX];
            for (int rank = 0; rank < size; rank++) {
                float single;
                put((char *)&values[rank], kind->dtype, rank, t, i);
                memcpy(&single, &values[rank], sizeof single);
                values[rank] = is_single ? (double)single : values[rank];
            }
            double whole = tree_sum(values, size, is_single);
            float single = (float)whole;
            memcpy(result + (size_t)i * bytes, is_single ? (void *)&single : (void *)&whole, bytes);
        }
        sum = add_to_checksum(sum, result, (size_t)counts[t] * bytes);
    }
    free(result);
    return sum;
}

static void print_references(void)
{
    if (!CHECK_OK(dtrain_init(NULL)))
        return;
    int is_wanted = dtrain_rank() == 0 && dtrain_size() <= REFERENCE_RANKS_MAX;
    for (int k = 0; k < NUM_REFERENCES && is_wanted; k++)
        print(&kinds[k], "reference", reference(&kinds[k], dtrain_size()));
    CHECK_OK(dtrain_shutdown());
}

int main(void)
{
    check_begin("bits", 100);
    print_references();
    for (int i = 0; i < NUM_WAYS; i++)
        try_way(&ways[i]);
    return check_end();
}
