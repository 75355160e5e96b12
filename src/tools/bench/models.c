#include "tools/bench/models.h"

#include <string.h>

/* Parameters in the order of definition. */
typedef struct list {
    int64_t counts[BENCH_MODEL_TENSORS_MAX];
    int n;
} list_t;

static void add(list_t *list, int64_t count)
{
    list->counts[list->n++] = count;
}

/* Weight and bias of a layer, or scale and shift of a normalization (weight == bias). */
static void pair(list_t *list, int64_t weight, int64_t bias)
{
    add(list, weight);
    add(list, bias);
}

/* A convolution without bias, and its batch normalization. */
static void conv_bn(list_t *list, int64_t in, int64_t out, int64_t kernel)
{
    add(list, in * out * kernel * kernel);
    pair(list, out, out);
}

static void resnet50(list_t *list)
{
    static const int planes[] = {64, 128, 256, 512}, blocks[] = {3, 4, 6, 3};
    int in = 64;
    conv_bn(list, 3, 64, 7);
    for (int stage = 0; stage < 4; stage++) {
        for (int block = 0; block < blocks[stage]; block++) {
            int width = planes[stage], out = 4 * width;
            conv_bn(list, in, width, 1);
            conv_bn(list, width, width, 3);
            conv_bn(list, width, out, 1);
            if (block == 0)
                conv_bn(list, in, out, 1); /* the shortcut's projection */
            in = out;
        }
    }
    pair(list, 2048 * 1000, 1000);
}

static void vgg16(list_t *list)
{
    static const int widths[] = {64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512};
    int in = 3;
    for (int i = 0; i < 13; i++) {
        pair(list, (int64_t)in * widths[i] * 9, widths[i]);
        in = widths[i];
    }
    pair(list, INT64_C(512) * 7 * 7 * 4096, 4096);
    pair(list, INT64_C(4096) * 4096, 4096);
    pair(list, INT64_C(4096) * 1000, 1000);
}

static void bert_base(list_t *list)
{
    const int64_t h = 768, wide = 3072;
    add(list, 30522 * h); /* words */
    add(list, 512 * h);   /* positions */
    add(list, 2 * h);     /* segments */
    pair(list, h, h);
    for (int layer = 0; layer < 12; layer++) {
        for (int i = 0; i < 4; i++) /* query, key, value, output */
            pair(list, h * h, h);
        pair(list, h, h);
        pair(list, h * wide, wide);
        pair(list, wide * h, h);
        pair(list, h, h);
    }
    pair(list, h * h, h); /* pooler */
}

static void gpt2(list_t *list)
{
    const int64_t h = 768;
    add(list, 50257 * h);
    add(list, 1024 * h);
    for (int layer = 0; layer < 12; layer++) {
        pair(list, h, h);
        pair(list, h * 3 * h, 3 * h);
        pair(list, h * h, h);
        pair(list, h, h);
        pair(list, h * 4 * h, 4 * h);
        pair(list, 4 * h * h, h);
    }
    pair(list, h, h);
}

int bench_model_sizes(const char *name, int64_t *counts)
{
    static const struct {
        const char *name;
        void (*define)(list_t *list);
    } models[] = {
        {"resnet50", resnet50}, {"vgg16", vgg16}, {"bert-base", bert_base}, {"gpt2", gpt2}};
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        if (strcmp(models[m].name, name) != 0)
            continue;
        list_t list = {.n = 0};
        models[m].define(&list);
        for (int i = 0; counts && i < list.n; i++)
            counts[i] = list.counts[list.n - 1 - i];
        return list.n;
    }
    return 0;
}
