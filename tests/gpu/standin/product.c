#include "product.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reduce/half.h"
#include "standin.h"

static size_t element_bytes(const standin_product_t *product)
{
    return product->type == CUDA_R_16BF ? 2 : 4;
}

/* ---- Where it all lies ---------------------------------------------------------------------- */

static void check_matrix(const standin_product_t *product, const char *name, const void *data,
                         int64_t rows, int64_t columns, int64_t ld)
{
    size_t bytes = (size_t)(ld * (columns - 1) + rows) * element_bytes(product);
    if (standin_is_device(data) && standin_room(data) >= bytes)
        return;
    fprintf(stderr, "stand-in: matrix %s of a product (%zu bytes) is not in device memory\n", name,
            bytes);
    abort();
}

void standin_product_check(const standin_product_t *product)
{
    const standin_product_t *p = product;
    check_matrix(p, "A", p->a, p->a_transposed ? p->k : p->m, p->a_transposed ? p->m : p->k,
                 p->lda);
    check_matrix(p, "B", p->b, p->b_transposed ? p->n : p->k, p->b_transposed ? p->k : p->n,
                 p->ldb);
    if (p->beta != 0)
        check_matrix(p, "C", p->c, p->m, p->n, p->ldc);
    check_matrix(p, "D", p->d, p->m, p->n, p->ldd);
    if (p->bias)
        check_matrix(p, "bias", p->bias, p->m, 1, p->m);
    if (p->mask && standin_room(p->mask) < (size_t)(p->mask_ld * p->n / 8)) {
        fprintf(stderr, "stand-in: the mask of a product is not in device memory\n");
        abort();
    }
}

/* ---- Elements ------------------------------------------------------------------------------- */

static float load(const standin_product_t *product, const void *data, int64_t index)
{
    if (product->type == CUDA_R_16BF)
        return dt_bf16_to_f32(((const uint16_t *)data)[index]);
    float value = ((const float *)data)[index];
    if (product->rounds_to_tf32) {
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        bits = (bits + 0xfff + ((bits >> 13) & 1)) & ~(uint32_t)0x1fff;
        memcpy(&value, &bits, sizeof value);
    }
    return value;
}

static void store(const standin_product_t *product, void *data, int64_t index, float value)
{
    if (product->type == CUDA_R_16BF)
        ((uint16_t *)data)[index] = dt_f32_to_bf16(value);
    else
        ((float *)data)[index] = value;
}

/* A matrix as the arithmetic takes it, without gaps between columns. */
static float *take(const standin_product_t *product, const void *data, int64_t rows,
                   int64_t columns, int64_t ld)
{
    const void *from = standin_reach(data);
    float *to = malloc((size_t)(rows * columns) * sizeof *to);
    if (!to)
        abort();
    for (int64_t j = 0; j < columns; j++) {
        for (int64_t i = 0; i < rows; i++)
            to[j * rows + i] = load(product, from, j * ld + i);
    }
    return to;
}

/* ---- What is done to a product -------------------------------------------------------------- */

/* One element of it, before it is rounded. */
static float finish(const standin_product_t *product, float value, int64_t row, int64_t column)
{
    int64_t bit = column * product->mask_ld + row;
    uint8_t *byte = product->mask ? (uint8_t *)standin_reach(product->mask) + bit / 8 : NULL;
    uint8_t mask = (uint8_t)(1 << bit % 8);
    if (product->epilogue == STANDIN_DRELU)
        return *byte & mask ? value : 0;
    if (product->epilogue != STANDIN_BIAS && product->epilogue != STANDIN_RELU_AUX_BIAS)
        return value;
    /* The bias is not an operand of the product: none of it is cut off for TF32. */
    standin_product_t whole = *product;
    whole.rounds_to_tf32 = 0;
    value += load(&whole, standin_reach(product->bias), row);
    if (product->epilogue == STANDIN_BIAS)
        return value;
    *byte = (uint8_t)(value > 0 ? *byte | mask : *byte & ~mask);
    return value > 0 ? value : 0;
}

static void sum_rows_of_a(const standin_product_t *product, const float *a)
{
    const standin_product_t *p = product;
    for (int64_t row = 0; row < p->m; row++) {
        float sum = 0;
        for (int64_t i = 0; i < p->k; i++)
            sum += p->a_transposed ? a[row * p->k + i] : a[i * p->m + row];
        store(p, standin_reach(p->bias), row, sum);
    }
}

void standin_product_run(void *argument)
{
    const standin_product_t *p = argument;
    int a_rows = (int)(p->a_transposed ? p->k : p->m),
        b_rows = (int)(p->b_transposed ? p->n : p->k);
    float *a = take(p, p->a, a_rows, p->m + p->k - a_rows, p->lda);
    float *b = take(p, p->b, b_rows, p->k + p->n - b_rows, p->ldb);
    float *d = malloc((size_t)(p->m * p->n) * sizeof *d);
    if (!d)
        abort();
    cblas_sgemm(CblasColMajor, p->a_transposed ? CblasTrans : CblasNoTrans,
                p->b_transposed ? CblasTrans : CblasNoTrans, (int)p->m, (int)p->n, (int)p->k,
                p->alpha, a, a_rows, b, b_rows, 0, d, (int)p->m);
    for (int64_t j = 0; j < p->n; j++) {
        for (int64_t i = 0; i < p->m; i++) {
            float value = d[j * p->m + i];
            if (p->beta != 0)
                value += p->beta * load(p, standin_reach(p->c), j * p->ldc + i);
            store(p, standin_reach(p->d), j * p->ldd + i, finish(p, value, i, j));
        }
    }
    if (p->epilogue == STANDIN_BGRADA)
        sum_rows_of_a(p, a);
    free(a);
    free(b);
    free(d);
}
