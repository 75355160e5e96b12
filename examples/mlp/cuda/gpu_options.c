#include "gpu_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse_precision(const char *text, gpu_precision_t *out, mlp_error_t *error)
{
    static const char *const names[] = {"fp32", "tf32", "bf16"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (gpu_precision_t)i;
            return 0;
        }
    }
    return mlp_fail(error, "--precision: '%s' is not fp32, tf32 or bf16", text);
}

static int parse_peak(const char *text, double *out, mlp_error_t *error)
{
    char *end;
    *out = strtod(text, &end);
    if (end != text && *end == '\0' && *out > 0)
        return 0;
    return mlp_fail(error, "--peak: '%s' is not a number above 0", text);
}

int gpu_options_parse(int argc, char **argv, options_t *options, gpu_options_t *gpu,
                      mlp_error_t *error)
{
    char **rest = calloc((size_t)argc + 1, sizeof *rest);
    int count = 0, status = 0;
    if (!rest)
        return mlp_fail(error, "no memory for the options");
    gpu->precision = GPU_PRECISION_TF32;
    for (int i = 0; i < argc && status == 0; i++) {
        if (strcmp(argv[i], "--graph") == 0)
            gpu->graph = 1;
        else if (strcmp(argv[i], "--tune") == 0)
            gpu->tunes = 1;
        else if (strcmp(argv[i], "--precision") == 0 && i + 1 < argc)
            status = parse_precision(argv[++i], &gpu->precision, error);
        else if (strcmp(argv[i], "--peak") == 0 && i + 1 < argc)
            status = parse_peak(argv[++i], &gpu->peak, error);
        else
            rest[count++] = argv[i];
    }
    if (status == 0)
        status = options_parse(count, rest, options, error);
    free(rest); /* what the options point to is argv's */
    if (status == 0 && options->codec)
        return mlp_fail(error, "--codec: codecs are for host memory");
    return status;
}

void gpu_options_print_help(const char *program)
{
    options_print_help(stdout, program);
    printf(
        "\nOn a GPU besides:\n"
        "  --precision P         fp32, tf32 (the default), or bf16 with parameters in fp32 too\n"
        "  --graph               what a step computes is in CUDA graphs\n"
        "  --tune                time several algorithms for each product: faster, but runs may\n"
        "                        differ in the last bits\n"
        "  --peak TFLOPS         of the GPU at this precision, for the share that is reached\n"
        "\nHere comm ms is the time from the first layer's gradients to the last reduction, and\n"
        "exposed is the part of it after all was computed, both by the GPU's clock. The first\n"
        "steps, in which much is made that stays, are not in any time.\n");
}

/* Dense, as the maker states them; the first that fits a device's name counts. */
static double known_peak(gpu_precision_t precision)
{
    static const struct {
        const char *name;
        double tflops[3]; /* fp32, tf32, bf16 */
    } known[] = {
        {"A100", {19.5, 156, 312}},   {"A30", {10.3, 82, 165}},     {"H100 PCIe", {51, 378, 756}},
        {"H100 NVL", {60, 418, 835}}, {"H200 NVL", {60, 418, 835}}, {"H100", {67, 495, 989}},
        {"H200", {67, 495, 989}},     {"GH200", {67, 495, 989}},    {"L40S", {91.6, 183, 362}},
        {"L4", {30.3, 60, 121}},      {"B200", {75, 1100, 2250}},
    };
    struct cudaDeviceProp properties;
    int device;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaGetDeviceProperties(&properties, device) != cudaSuccess)
        return 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strstr(properties.name, known[i].name))
            return known[i].tflops[precision];
    }
    return 0;
}

void gpu_print_products(const gpu_model_t *model)
{
    const gpu_plan_t *plan = &model->plans[0];
    int forward = 0, by_weight = 0, by_input = 0;
    for (int i = 0; plan->layers && i < model->layer_count; i++) {
        forward += plan->layers[i].forward.is_fused;
        by_weight += plan->layers[i].by_weight.is_fused;
        by_input += plan->layers[i].by_input.is_fused;
    }
    printf("in epilogues: bias and ReLU of %d of %d layers, the bias's gradient of %d of %d, "
           "ReLU's gradient of %d of %d\n",
           forward, model->layer_count, by_weight, model->layer_count, by_input,
           model->layer_count - 1);
}

/* Products alone: one forward and two backward, but for the first layer's input. */
void gpu_print_rate(const options_t *options, const gpu_options_t *gpu, int ranks,
                    const timing_t *timing)
{
    const int *layers = options->layers;
    double flops = 0;
    for (int i = 0; i + 1 < options->layer_count; i++)
        flops += (i == 0 ? 4.0 : 6.0) * layers[i] * layers[i + 1];
    double tflops = flops * (double)timing->samples / timing->total / ranks / 1e12;
    double peak = gpu->peak > 0 ? gpu->peak : known_peak(gpu->precision);
    printf("each GPU: %.4g TFLOP/s", tflops);
    if (peak > 0)
        printf(", %.1f%% of %.0f", 100 * tflops / peak, peak);
    printf("; %.0f samples/s\n", (double)timing->samples / timing->total / ranks);
    fflush(stdout);
}
