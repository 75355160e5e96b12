#include "dataset.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "idx.h"
#include "random.h"

#define PATH_BYTES 4096
#define IDX_CLASSES 10

#define SYNTHETIC_TEST 1024
#define SYNTHETIC_NOISE 160 /* so many grey levels at most, up or down */

/* Puts the path of folder/name, or of folder/name.gz, whichever is there, into `path`. */
static int find_file(const char *folder, const char *name, char *path, mlp_error_t *error)
{
    static const char *const endings[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        int length = snprintf(path, PATH_BYTES, "%s/%s%s", folder, name, endings[i]);
        if (length >= PATH_BYTES)
            return mlp_fail(error, "%.200s...: the path is too long", folder);
        if (access(path, F_OK) == 0)
            return 0;
        if (errno != ENOENT)
            return mlp_fail(error, "%s: %s", path, strerror(errno));
    }
    if (access(folder, F_OK) != 0)
        return mlp_fail(error,
                        "%s/%s: missing, as is its folder. Debian's package "
                        "dataset-fashion-mnist has the data; --data names another folder",
                        folder, name);
    return mlp_fail(error, "%s/%s: missing, and so is %s.gz", folder, name, name);
}

static int check_pair(const char *images_path, const idx_t *images, const char *labels_path,
                      const idx_t *labels, mlp_error_t *error)
{
    if (images->dims[0] > INT32_MAX || images->dims[1] * images->dims[2] > INT32_MAX)
        return mlp_fail(error,
                        "%s: wrong dimensions: %" PRId64 " images of %" PRId64 " x %" PRId64
                        " are more than this program can count",
                        images_path, images->dims[0], images->dims[1], images->dims[2]);
    if (images->dims[0] != labels->dims[0])
        return mlp_fail(error, "%s has %" PRId64 " labels, but %s has %" PRId64 " images",
                        labels_path, labels->dims[0], images_path, images->dims[0]);
    for (int64_t i = 0; i < labels->size; i++) {
        if (labels->data[i] >= IDX_CLASSES)
            return mlp_fail(error, "%s: label %d of sample %" PRId64 " is above %d", labels_path,
                            labels->data[i], i, IDX_CLASSES - 1);
    }
    return 0;
}

static int load_samples(const char *folder, const char *images_name, const char *labels_name,
                        samples_t *out, mlp_error_t *error)
{
    char images_path[PATH_BYTES];
    char labels_path[PATH_BYTES];
    idx_t images = {0};
    idx_t labels = {0};
    if (find_file(folder, images_name, images_path, error) != 0 ||
        find_file(folder, labels_name, labels_path, error) != 0 ||
        idx_read(images_path, 3, &images, error) != 0 ||
        idx_read(labels_path, 1, &labels, error) != 0 ||
        check_pair(images_path, &images, labels_path, &labels, error) != 0) {
        idx_free(&images);
        idx_free(&labels);
        return -1;
    }
    out->count = images.dims[0];
    out->features = (int)(images.dims[1] * images.dims[2]);
    out->pixels = images.data;
    out->labels = labels.data;
    return 0;
}

int dataset_load(const char *folder, dataset_t *out, mlp_error_t *error)
{
    dataset_t dataset = {.classes = IDX_CLASSES};
    if (load_samples(folder, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", &dataset.train,
                     error) != 0)
        return -1;
    if (load_samples(folder, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", &dataset.test,
                     error) != 0) {
        dataset_free(&dataset);
        return -1;
    }
    dataset.features = dataset.train.features;
    if (dataset.test.features != dataset.features) {
        mlp_fail(error,
                 "%s: wrong dimensions: t10k-images-idx3-ubyte has images of %d pixels, "
                 "train-images-idx3-ubyte of %d",
                 folder, dataset.test.features, dataset.features);
        dataset_free(&dataset);
        return -1;
    }
    *out = dataset;
    return 0;
}

/* Each sample is its class's pattern under noise. */
static int synthesize_samples(int64_t count, int features, int classes, const uint8_t *patterns,
                              random_stream_t *random, samples_t *out)
{
    samples_t samples = {.count = count, .features = features};
    samples.pixels = malloc((size_t)count * (size_t)features);
    samples.labels = malloc((size_t)count);
    if (samples.pixels == NULL || samples.labels == NULL) {
        free(samples.pixels);
        free(samples.labels);
        return -1;
    }
    for (int64_t i = 0; i < count; i++) {
        samples.labels[i] = (uint8_t)random_below(random, (uint64_t)classes);
        const uint8_t *pattern = patterns + (size_t)samples.labels[i] * (size_t)features;
        uint8_t *pixels = samples.pixels + i * features;
        for (int j = 0; j < features; j++) {
            int noise = (int)random_below(random, 2 * SYNTHETIC_NOISE + 1) - SYNTHETIC_NOISE;
            int value = pattern[j] + noise;
            pixels[j] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    }
    *out = samples;
    return 0;
}

int dataset_synthesize(int64_t count, int features, int classes, uint64_t seed, dataset_t *out,
                       mlp_error_t *error)
{
    dataset_t dataset = {.features = features, .classes = classes};
    random_stream_t random = random_begin(seed, RANDOM_DATA);
    size_t pattern_bytes = (size_t)features * (size_t)classes;
    uint8_t *patterns = malloc(pattern_bytes);
    if (patterns == NULL)
        return mlp_fail(error, "no memory for synthetic data");
    for (size_t i = 0; i < pattern_bytes; i++)
        patterns[i] = (uint8_t)random_below(&random, 256);
    int status = synthesize_samples(count, features, classes, patterns, &random, &dataset.train);
    if (status == 0)
        status =
            synthesize_samples(SYNTHETIC_TEST, features, classes, patterns, &random, &dataset.test);
    free(patterns);
    if (status != 0) {
        dataset_free(&dataset);
        return mlp_fail(error, "no memory for synthetic data");
    }
    *out = dataset;
    return 0;
}

void dataset_free(dataset_t *dataset)
{
    free(dataset->train.pixels);
    free(dataset->train.labels);
    free(dataset->test.pixels);
    free(dataset->test.labels);
    *dataset = (dataset_t){0};
}

void samples_gather(const samples_t *samples, const int64_t *indices, int count, float *inputs,
                    uint8_t *labels)
{
    const float scale = 1.0f / (255.0f * PIXEL_DEVIATION);
    const float shift = -PIXEL_MEAN / PIXEL_DEVIATION;
    for (int i = 0; i < count; i++) {
        const uint8_t *pixels = samples->pixels + (size_t)indices[i] * (size_t)samples->features;
        float *row = inputs + (size_t)i * (size_t)samples->features;
        for (int j = 0; j < samples->features; j++)
            row[j] = (float)pixels[j] * scale + shift;
        labels[i] = samples->labels[indices[i]];
    }
}

static uint64_t fingerprint(uint64_t sum, const samples_t *samples)
{
    sum = checksum_bytes(sum, &samples->count, sizeof samples->count);
    sum = checksum_bytes(sum, samples->labels, (size_t)samples->count);
    return checksum_bytes(sum, samples->pixels, (size_t)samples->count * (size_t)samples->features);
}

uint64_t dataset_fingerprint(const dataset_t *dataset)
{
    return fingerprint(fingerprint(CHECKSUM_START, &dataset->train), &dataset->test);
}
