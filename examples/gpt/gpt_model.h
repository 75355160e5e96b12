/*
 * gpt_model.h - a small transformer of the GPT kind over bytes: it knows nothing of ranks.
 *
 *     x = token + position;  per layer: x += attention(norm(x)), x += relu(norm(x) up) down;
 *     logits = norm(x) head
 *
 * Matrices are row after row; one row is one position of one sequence.
 */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include <stdint.h>

#define GPT_TOKENS 256 /* bytes */
#define GPT_LENGTH 64  /* positions of a sequence */
#define GPT_HEADS 4
#define GPT_HEAD_WIDTH 16
#define GPT_WIDTH (GPT_HEADS * GPT_HEAD_WIDTH) /* numbers by which a position is known */
#define GPT_HIDDEN (4 * GPT_WIDTH)
#define GPT_LAYERS 2

/* Numbers of the parameters. A layer's begin at GPT_LAYER(l). */
enum { GPT_TOKEN, GPT_POSITION, GPT_FIRST_LAYER };
enum { GPT_NORM1, GPT_QKV, GPT_PROJECTION, GPT_NORM2, GPT_UP, GPT_DOWN, GPT_LAYER_PARAMS };
#define GPT_LAYER(l) (GPT_FIRST_LAYER + (l)*GPT_LAYER_PARAMS)
#define GPT_NORM GPT_LAYER(GPT_LAYERS)
#define GPT_HEAD (GPT_NORM + 1)
#define GPT_PARAMS (GPT_HEAD + 1)

/* What forward computes in a layer and backward needs: `rows` rows of each. */
typedef struct gpt_layer {
    float *input, *normal1, *qkv, *weights, *mixed; /* weights: of attention */
    float *middle, *normal2, *hidden;
} gpt_layer_t;

typedef struct gpt_model {
    float *values[GPT_PARAMS], *gradients[GPT_PARAMS]; /* the caller's memory */
    int sequences;                                     /* most at once */
    const uint8_t **texts; /* where each sequence begins, of GPT_LENGTH + 1 bytes; the caller's */
    float *memory;         /* of all below */
    gpt_layer_t layers[GPT_LAYERS];
    float *last, *normal, *logits;
    float *delta, *branch, *wide, *scores; /* backward's scratch */
} gpt_model_t;

/* The extents of a parameter; 1: it is a vector, and shape[1] is 1. */
int gpt_shape(int index, int64_t shape[2]);
const char *gpt_name(int index, char name[32]);

int gpt_create(gpt_model_t *model, int sequences); /* -1: no memory */
void gpt_free(gpt_model_t *model);

/* Fills in the parameters. */
void gpt_initialize(gpt_model_t *model, uint64_t seed);

/* Predicts each next byte of `count` sequences. */
void gpt_forward(gpt_model_t *model, int count);

/* After gpt_forward: the sum of the positions' losses; makes of the logits their gradient, each
 * position's times `scale`. */
double gpt_loss(gpt_model_t *model, int count, float scale);

/* After gpt_loss: all gradients. `ready` is told of each one once it is complete. */
void gpt_backward(gpt_model_t *model, int count, void (*ready)(int index, void *user), void *user);

#endif
