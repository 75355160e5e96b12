#include "tools/bench/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/models.h"

static const char help[] =
    "usage: dtrain-bench OPERATION [options]                (under mpirun for several ranks)\n"
    "\n"
    "OPERATION is allreduce, broadcast, reduce, reducescatter, allgather, alltoall, gather or\n"
    "scatter. A size is that of the whole tensor: of the longer one of input and output, rounded "
    "up\n"
    "so that each rank's share is the same. The root is rank 0.\n"
    "\n"
    "Times an operation over a range of sizes, checks every result, and prints for each size the\n"
    "median and the least time, algorithm and bus bandwidth as nccl-tests defines them, and the\n"
    "number of wrong elements. A time is the slowest rank's.\n"
    "\n"
    "  -b, --min-bytes N     smallest tensor (4); N may end in K, M or G\n"
    "  -e, --max-bytes N     largest tensor (64M)\n"
    "  -f, --factor N        from one size to the next (4)\n"
    "  -d, --dtype TYPE      float32, float64, float16, bfloat16, int8, uint8, int16, uint16,\n"
    "                        int32, int64 (float32)\n"
    "  -o, --op OP           sum, average, min, max, product (sum)\n"
    "  -n, --iterations N    measured repetitions (by size: 200 down to 15)\n"
    "  -w, --warmup N        repetitions before (5)\n"
    "      --buffers KIND    library (from dtrain_mem_alloc) or private (private)\n"
    "      --out-of-place    another buffer for the result (in place: allreduce, broadcast and\n"
    "                        reduce; the others are never)\n"
    "      --tensors N       submit N tensors of the size at once (1)\n"
    "      --model NAME      submit the gradients of resnet50, vgg16, bert-base or gpt2 in\n"
    "                        backward order, in place of sizes\n"
    "      --codec NAME      how it travels: fp16, bf16, int8, topk, topk:0.05 … (allreduce of\n"
    "                        float32). With int8 and topk, results are not checked.\n"
    "      --vs PEER         mpi: MPI's own call, a call a tensor; memcpy: a plain copy of the\n"
    "                        same bytes on all ranks at once; alternating with ours in the same\n"
    "                        run. May be given twice. The ratio is ours over theirs.\n"
    "      --json FILE       write the results as a JSON array\n"
    "  -h, --help            this text\n";

static int fail(int speaks, const char *what, const char *value)
{
    if (speaks)
        fprintf(stderr, "dtrain-bench: %s '%s' (see --help)\n", what, value);
    return -1;
}

/* A positive number with an optional K, M or G; 0 when it is none. */
static int64_t parse_number(const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    int shift = 0;
    if (*end == 'K' || *end == 'k')
        shift = 10;
    else if (*end == 'M' || *end == 'm')
        shift = 20;
    else if (*end == 'G' || *end == 'g')
        shift = 30;
    if (shift)
        end++;
    if (end == text || *end || errno || value <= 0 || value > (INT64_C(1) << 40) >> shift)
        return 0;
    return (int64_t)value << shift;
}

static int parse_dtype(const char *name, dtrain_dtype_t *dtype)
{
    for (int i = DTRAIN_DTYPE_U8; i <= DTRAIN_DTYPE_I16; i++) {
        if (i != DTRAIN_DTYPE_BOOL && strcmp(dtrain_dtype_name((dtrain_dtype_t)i), name) == 0) {
            *dtype = (dtrain_dtype_t)i;
            return 0;
        }
    }
    return -1;
}

static int parse_op(const char *name, dtrain_op_t *op)
{
    for (int i = DTRAIN_OP_SUM; i <= DTRAIN_OP_PRODUCT; i++) {
        if (strcmp(dtrain_op_name((dtrain_op_t)i), name) == 0) {
            *op = (dtrain_op_t)i;
            return 0;
        }
    }
    return -1;
}

enum { OPT_BUFFERS = 256, OPT_OUT_OF_PLACE, OPT_TENSORS, OPT_MODEL, OPT_VS, OPT_JSON, OPT_CODEC };

static const struct option long_options[] = {
    {"min-bytes", required_argument, NULL, 'b'},
    {"max-bytes", required_argument, NULL, 'e'},
    {"factor", required_argument, NULL, 'f'},
    {"dtype", required_argument, NULL, 'd'},
    {"op", required_argument, NULL, 'o'},
    {"iterations", required_argument, NULL, 'n'},
    {"warmup", required_argument, NULL, 'w'},
    {"buffers", required_argument, NULL, OPT_BUFFERS},
    {"out-of-place", no_argument, NULL, OPT_OUT_OF_PLACE},
    {"tensors", required_argument, NULL, OPT_TENSORS},
    {"model", required_argument, NULL, OPT_MODEL},
    {"vs", required_argument, NULL, OPT_VS},
    {"codec", required_argument, NULL, OPT_CODEC},
    {"json", required_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* Options whose value is a number. 1 when it was one of them, -1 when its value is bad. */
static int take_number(bench_options_t *options, int option, const char *value, int speaks)
{
    int64_t number = parse_number(value);
    switch (option) {
    case 'b':
        options->min_bytes = number;
        break;
    case 'e':
        options->max_bytes = number;
        break;
    case 'f':
        options->factor = number;
        break;
    case 'n':
        options->iterations = number <= 1000000 ? (int)number : 0;
        number = options->iterations;
        break;
    case 'w':
        options->warmup = number <= 1000000 ? (int)number : 0;
        number = number > 0 || strcmp(value, "0") == 0;
        break;
    case OPT_TENSORS:
        options->tensors = number <= 100000 ? (int)number : 0;
        number = options->tensors;
        break;
    default:
        return 0;
    }
    return number > 0 ? 1 : fail(speaks, "bad number", value);
}

static int take_word(bench_options_t *options, int option, const char *value, int speaks)
{
    switch (option) {
    case 'd':
        return parse_dtype(value, &options->dtype) ? fail(speaks, "unknown type", value) : 0;
    case 'o':
        return parse_op(value, &options->op) ? fail(speaks, "unknown reduction", value) : 0;
    case OPT_BUFFERS:
        options->library_buffers = strcmp(value, "library") == 0;
        if (!options->library_buffers && strcmp(value, "private") != 0)
            return fail(speaks, "unknown kind of buffers", value);
        return 0;
    case OPT_OUT_OF_PLACE:
        options->in_place = 0;
        return 0;
    case OPT_MODEL:
        options->model = value;
        return bench_model_sizes(value, NULL) == 0 ? fail(speaks, "unknown model", value) : 0;
    case OPT_VS:
        if (strcmp(value, "mpi") == 0)
            options->vs_mpi = 1;
        else if (strcmp(value, "memcpy") == 0)
            options->vs_memcpy = 1;
        else
            return fail(speaks, "unknown peer", value);
        return 0;
    case OPT_CODEC:
        dtrain_codec_destroy(options->codec);
        options->codec = NULL;
        if (dtrain_codec_create(value, &options->codec) != DTRAIN_OK)
            return fail(speaks, dtrain_last_error(), "--codec");
        options->is_lossy = (options->codec->flags & DTRAIN_CODEC_FEEDBACK) != 0;
        return 0;
    case OPT_JSON:
        options->json = value;
        return 0;
    case 'h':
        if (speaks)
            fputs(help, stdout);
        return 1;
    default:
        return fail(speaks, "see", "dtrain-bench --help");
    }
}

static int check(const bench_options_t *options, int speaks)
{
    if (options->min_bytes > options->max_bytes)
        return fail(speaks, "--min-bytes is above --max-bytes:", "-b");
    if (options->factor < 2 && options->min_bytes != options->max_bytes)
        return fail(speaks, "the factor must be at least 2, not", "1");
    if (options->codec && (options->kind != BENCH_ALLREDUCE || options->dtype != DTRAIN_DTYPE_F32))
        return fail(speaks, "allreduces of float32 alone have a codec:", options->codec->name);
    return 0;
}

int bench_options_parse(bench_options_t *options, int argc, char **argv, int speaks)
{
    static const bench_options_t defaults = {.min_bytes = 4,
                                             .max_bytes = 64 << 20,
                                             .factor = 4,
                                             .dtype = DTRAIN_DTYPE_F32,
                                             .warmup = 5,
                                             .in_place = 1,
                                             .tensors = 1};
    *options = defaults;
    opterr = speaks;
    for (int option;
         (option = getopt_long(argc, argv, "b:e:f:d:o:n:w:h", long_options, NULL)) != -1;) {
        int taken = take_number(options, option, optarg ? optarg : "", speaks);
        if (taken == 0)
            taken = take_word(options, option, optarg ? optarg : "", speaks);
        else if (taken > 0)
            taken = 0;
        if (taken != 0)
            return taken;
    }
    const char *kind = optind < argc ? argv[optind] : "";
    options->kind = bench_kind_find(kind);
    if (options->kind == BENCH_KINDS)
        return fail(speaks, "which operation? not", kind);
    options->in_place &= bench_traits(options->kind)->is_in_place;
    if (optind + 1 < argc)
        return fail(speaks, "unexpected argument", argv[optind + 1]);
    return check(options, speaks);
}
