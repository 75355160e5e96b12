/* models.h - the gradient tensors of known models: element counts in the order in which backward
 * makes them, derived from the architectures. */
#ifndef DT_BENCH_MODELS_H
#define DT_BENCH_MODELS_H

#include <stdint.h>

#define BENCH_MODEL_TENSORS_MAX 512

/*
 * Fills `counts` (BENCH_MODEL_TENSORS_MAX entries, or NULL) and returns how many there are; 0 for
 * an unknown name. Known: "resnet50" (He et al. 2015, 161 tensors, 25,557,032 elements), "vgg16"
 * (Simonyan and Zisserman 2014, 32, 138,357,544), "bert-base" (Devlin et al. 2018 with pooler, 199,
 * 109,482,240), "gpt2" (Radford et al. 2019, tied output layer, 148, 124,439,808).
 */
int bench_model_sizes(const char *name, int64_t *counts);

#endif
