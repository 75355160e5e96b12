/* error.h - the text of an error on its way to the user. */
#ifndef MLP_ERROR_H
#define MLP_ERROR_H

/* Room for a path of the longest kind and what is wrong with it. */
#define MLP_ERROR_MAX 4608

typedef struct mlp_error {
    char text[MLP_ERROR_MAX];
    int same_everywhere; /* every rank has this text, so rank 0 alone shows it */
} mlp_error_t;

/* Sets the text and returns -1, so that a function can end with `return mlp_fail(...)`. */
int mlp_fail(mlp_error_t *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
