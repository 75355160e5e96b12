#include "options.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

#define DEFAULT_BATCH 128
#define LAYER_UNITS_MAX 1000000

typedef enum kind { KIND_INTEGER, KIND_REAL, KIND_TEXT, KIND_LAYERS, KIND_FLAG } kind_t;

typedef struct option {
    const char *name;
    const char *value; /* its name in the help; NULL for a flag */
    kind_t kind;
    size_t offset;
    double min;
    double max;
    const char *help;
} option_t;

#define FIELD(field) offsetof(options_t, field)

static const option_t table[] = {
    {"--layers", "N,N,...", KIND_LAYERS, 0, 1, LAYER_UNITS_MAX,
     "units of each layer, input first (784,256,128,10)"},
    {"--batch", "N", KIND_INTEGER, FIELD(batch), 1, 1e9, "samples of a step over all ranks (128)"},
    {"--batch-per-rank", "N", KIND_INTEGER, FIELD(batch_per_rank), 1, 1e6,
     "samples of a step on each rank, in place of --batch"},
    {"--epochs", "N", KIND_INTEGER, FIELD(epochs), 1, 1e6, "passes over the training set (10)"},
    {"--steps", "N", KIND_INTEGER, FIELD(steps), 1, 1e12,
     "stop after N steps in all, epochs finished or not"},
    {"--lr", "RATE", KIND_REAL, FIELD(learning_rate), 0, 1000,
     "learning rate of the first step (0.02); it falls to 0 along half a cosine"},
    {"--momentum", "M", KIND_REAL, FIELD(momentum), 0, 0.9999, "momentum of the descent (0.9)"},
    {"--seed", "N", KIND_INTEGER, FIELD(seed), 0, 1e15,
     "seed of the weights, of the order of samples and of synthetic data (1)"},
    {"--data", "DIR", KIND_TEXT, FIELD(data), 0, 0,
     "folder with the four IDX files of MNIST's names, plain or .gz\n"
     "                        (/usr/share/datasets/fashion-mnist)"},
    {"--synthetic", NULL, KIND_FLAG, FIELD(synthetic), 0, 0,
     "train on data made from the seed; any first and last layer will do"},
    {"--samples", "N", KIND_INTEGER, FIELD(samples), 1, 1e8,
     "samples of synthetic data to train on (4096)"},
    {"--sharded", NULL, KIND_FLAG, FIELD(sharded), 0, 0,
     "each rank keeps the momentum of, and updates, its share of the parameters"},
    {"--codec", "NAME", KIND_TEXT, FIELD(codec), 0, 0,
     "how gradients travel: fp16, bf16, int8, topk:0.1 (as they are)"},
    {"--help", NULL, KIND_FLAG, FIELD(help), 0, 0, "show this and stop"},
};

#define TABLE_LENGTH (sizeof table / sizeof table[0])

static int parse_integer(const option_t *option, const char *text, int64_t *out, mlp_error_t *error)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || (double)value < option->min ||
        (double)value > option->max)
        return mlp_fail(error, "%s: '%s' is not a whole number from %.0f to %.0f", option->name,
                        text, option->min, option->max);
    *out = value;
    return 0;
}

static int parse_real(const option_t *option, const char *text, double *out, mlp_error_t *error)
{
    char *end;
    double value = strtod(text, &end);
    /* Written so that NaN fails too. */
    int in_range = value >= option->min && value <= option->max;
    if (end == text || *end != '\0' || !in_range)
        return mlp_fail(error, "%s: '%s' is not a number from %g to %g", option->name, text,
                        option->min, option->max);
    *out = value;
    return 0;
}

static int parse_layers(const option_t *option, const char *text, options_t *out,
                        mlp_error_t *error)
{
    int count = 0;
    const char *next = text;
    for (;;) {
        char *end;
        errno = 0;
        long units = strtol(next, &end, 10);
        if (end == next || (*end != ',' && *end != '\0') || errno != 0 || units < 1 ||
            units > LAYER_UNITS_MAX)
            return mlp_fail(error,
                            "%s: '%s' is not a list of whole numbers from 1 to %d, as 784,256,10",
                            option->name, text, LAYER_UNITS_MAX);
        if (count == OPTIONS_LAYERS_MAX)
            return mlp_fail(error, "%s: '%s' has more than %d layers", option->name, text,
                            OPTIONS_LAYERS_MAX);
        out->layers[count++] = (int)units;
        if (*end == '\0')
            break;
        next = end + 1;
    }
    if (count < 2)
        return mlp_fail(error, "%s: '%s' has no output layer; give two sizes or more", option->name,
                        text);
    out->layer_count = count;
    return 0;
}

static int parse_value(const option_t *option, const char *text, options_t *out, mlp_error_t *error)
{
    void *field = (char *)out + option->offset;
    switch (option->kind) {
    case KIND_INTEGER:
        return parse_integer(option, text, field, error);
    case KIND_REAL:
        return parse_real(option, text, field, error);
    case KIND_LAYERS:
        return parse_layers(option, text, out, error);
    case KIND_FLAG:
        *(int *)field = 1;
        return 0;
    case KIND_TEXT:
        break;
    }
    if (text[0] == '\0')
        return mlp_fail(error, "%s: the value is empty", option->name);
    *(const char **)field = text;
    return 0;
}

/* The option that `argument` names, as "--name" or "--name=value". */
static const option_t *find_option(const char *argument)
{
    size_t length = strcspn(argument, "=");
    for (size_t i = 0; i < TABLE_LENGTH; i++) {
        if (strlen(table[i].name) == length && strncmp(table[i].name, argument, length) == 0)
            return &table[i];
    }
    return NULL;
}

static int check_together(options_t *options, mlp_error_t *error)
{
    if (options->batch > 0 && options->batch_per_rank > 0)
        return mlp_fail(error, "--batch and --batch-per-rank exclude each other");
    if (options->batch == 0 && options->batch_per_rank == 0)
        options->batch = DEFAULT_BATCH;
    if (options->synthetic && options->layers[options->layer_count - 1] > 256)
        return mlp_fail(error, "--layers: synthetic data has at most 256 classes, not %d",
                        options->layers[options->layer_count - 1]);
    return 0;
}

int options_parse(int argc, char **argv, options_t *out, mlp_error_t *error)
{
    options_t options = {.layers = {784, 256, 128, 10},
                         .layer_count = 4,
                         .epochs = 10,
                         .samples = 4096,
                         .seed = 1,
                         .learning_rate = 0.02,
                         .momentum = 0.9,
                         .data = "/usr/share/datasets/fashion-mnist"};
    for (int i = 1; i < argc; i++) {
        const option_t *option = find_option(argv[i]);
        if (option == NULL)
            return mlp_fail(error, "unknown option '%s'; --help lists all", argv[i]);
        const char *value = strchr(argv[i], '=');
        if (option->kind == KIND_FLAG && value != NULL)
            return mlp_fail(error, "%s takes no value", option->name);
        if (value != NULL) {
            value++;
        } else if (option->kind != KIND_FLAG) {
            if (++i == argc)
                return mlp_fail(error, "%s needs a value; --help lists all", option->name);
            value = argv[i];
        }
        if (parse_value(option, value, &options, error) != 0)
            return -1;
    }
    if (check_together(&options, error) != 0)
        return -1;
    *out = options;
    return 0;
}

void options_print_help(FILE *out, const char *program)
{
    fprintf(out,
            "Usage: %s [options]\n"
            "       mpirun -np RANKS %s [options]\n"
            "\n"
            "Trains a multilayer perceptron on Fashion-MNIST, or on any set in its format, on as\n"
            "many ranks as the launcher starts.\n"
            "\n",
            program, program);
    for (size_t i = 0; i < TABLE_LENGTH; i++) {
        char left[32];
        snprintf(left, sizeof left, "%s %s", table[i].name,
                 table[i].value != NULL ? table[i].value : "");
        fprintf(out, "  %-20s  %s\n", left, table[i].help);
    }
    fprintf(out,
            "\nThe last line of the output is RESULT and a JSON object. comm ms is the time\n"
            "from the start of the backward pass to the end of a step, in which gradients are\n"
            "reduced and parameters updated; exposed is the part of it in which this rank only\n"
            "waits. Both are rank 0's.\n");
}

int64_t options_global_batch(const options_t *options, int ranks)
{
    return options->batch > 0 ? options->batch : options->batch_per_rank * ranks;
}

int options_check_layers(const options_t *options, int features, int classes, mlp_error_t *error)
{
    int inputs = options->layers[0];
    int outputs = options->layers[options->layer_count - 1];
    if (inputs != features)
        return mlp_fail(error, "--layers: the first layer has %d inputs, but a sample in %s has %d",
                        inputs, options->data, features);
    if (outputs != classes)
        return mlp_fail(error,
                        "--layers: the last layer has %d outputs, but the data in %s has %d "
                        "classes",
                        outputs, options->data, classes);
    return 0;
}

uint64_t options_fingerprint(const options_t *options)
{
    const int64_t numbers[] = {options->batch,   options->batch_per_rank, options->epochs,
                               options->steps,   options->seed,           options->synthetic,
                               options->sharded, options->samples};
    const double reals[] = {options->learning_rate, options->momentum};
    uint64_t sum = checksum_bytes(CHECKSUM_START, numbers, sizeof numbers);
    sum = checksum_bytes(sum, reals, sizeof reals);
    return checksum_bytes(sum, options->layers,
                          (size_t)options->layer_count * sizeof options->layers[0]);
}
