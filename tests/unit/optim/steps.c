/*
 * steps.c - for test_torch.py: reads parameters and the gradients of some steps from stdin, as
 * float32, and writes the parameters after the last step.
 *
 *     steps RULE RATE DECAY MOMENTUM NESTEROV BETA1 BETA2 EPSILON COUNT STEPS
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "optim/update.h"

static int run(const dt_update_settings_t *settings, size_t count, long steps)
{
    int code = 1;
    float *memory = calloc(4 * count, sizeof *memory);
    if (!memory)
        return 1;
    float *gradients = memory + 3 * count;
    dt_update_range_t range = {.count = count,
                               .dtype = DTRAIN_DTYPE_F32,
                               .gradient_dtype = DTRAIN_DTYPE_F32,
                               .gradients = gradients,
                               .parameters = memory,
                               .first = memory + count,
                               .second = memory + 2 * count};
    if (fread(memory, sizeof *memory, count, stdin) != count)
        goto out;
    for (long step = 1; step <= steps; step++) {
        if (fread(gradients, sizeof *gradients, count, stdin) != count)
            goto out;
        dt_update(settings, step, 1, &range);
    }
    if (fwrite(memory, sizeof *memory, count, stdout) == count && fflush(stdout) == 0)
        code = 0;
out:
    free(memory);
    return code;
}

int main(int argc, char **argv)
{
    if (argc != 11)
        return 2;
    dt_update_settings_t settings = {.rule = (dt_update_rule_t)strtol(argv[1], NULL, 10),
                                     .learning_rate = strtod(argv[2], NULL),
                                     .weight_decay = strtod(argv[3], NULL),
                                     .momentum = strtod(argv[4], NULL),
                                     .nesterov = (int)strtol(argv[5], NULL, 10),
                                     .beta1 = strtod(argv[6], NULL),
                                     .beta2 = strtod(argv[7], NULL),
                                     .epsilon = strtod(argv[8], NULL)};
    if (dt_update_check(&settings) != DTRAIN_OK) {
        fprintf(stderr, "%s\n", dt_last_error());
        return 2;
    }
    return run(&settings, strtoul(argv[9], NULL, 10), strtol(argv[10], NULL, 10));
}
