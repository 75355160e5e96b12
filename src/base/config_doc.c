/* docs/config.md, from the table. */
#include "base/clock.h"
#include "base/config_table.h"
#include "base/text.h"

static const char introduction[] =
    "# Settings\n"
    "\n"
    "This page is generated from the table of settings by `dtrain-config-doc`; a test compares "
    "the two.\n"
    "\n"
    "A setting is looked for in three places, and the first that has it wins:\n"
    "\n"
    "1. its variable in the environment, so that whoever starts a job has the last word;\n"
    "2. its field of the `dtrain_config_t` that the program gives to `dtrain_init`, set directly "
    "or by `dtrain_config_set(&config, \"timeout_ms\", \"90s\")`;\n"
    "3. the default.\n"
    "\n"
    "A value that cannot be read or is out of range makes `dtrain_init` fail with "
    "`DTRAIN_ERR_CONFIG` and a text that names the variable or the field. A `DTRAIN_` variable "
    "that is no setting earns a warning with the nearest one.\n"
    "\n"
    "How values are written in the environment and for `dtrain_config_set`, in upper or lower "
    "case:\n"
    "\n"
    "- **size**: a number and a unit, as `64MB`, `512K` or `1.5GiB`; without a unit, bytes. "
    "`K`, `KB` and `KiB` are all 1024 bytes, and so on up to `G`.\n"
    "- **duration**: a number and a unit, as `1500ms`, `1.5s`, `200us`, `2min` or `1h`; without "
    "a unit, in the unit that ends the name. Rounded up to a whole number of that unit.\n"
    "- **choice**: one of the words, or its number in `dtrain.h` where it has one.\n"
    "- `off`, or 0, for none, where the range says so.\n"
    "\n"
    "In the struct, numbers are in the unit that the type names; 0 (or `\"\"`) means the default, "
    "and -1 means off.\n"
    "\n"
    "Settings marked as shared have to be the same on all ranks: rank 0's are used, and a rank "
    "that was given another value logs a warning.\n";

static const char launchers[] =
    "\n"
    "## Variables of launchers\n"
    "\n"
    "Whether a launcher started the process, and how many with it, is read from "
    "`OMPI_COMM_WORLD_SIZE` (Open MPI), `PMI_SIZE` (MPICH, Intel MPI, Slurm with PMI-2), or, "
    "when `PMIX_RANK` or `PMI_RANK` is set, `SLURM_STEP_NUM_TASKS` or `SLURM_NTASKS`. They are "
    "compared with the world that MPI reports: a program that was started by another MPI's "
    "launcher gets an error instead of a world of one.\n";

static const char *type_name(const dt_setting_t *setting)
{
    switch (setting->kind) {
    case DT_SETTING_BYTES:
        return "size, in bytes";
    case DT_SETTING_DURATION:
        return setting->unit_ns == DT_NS_PER_MS ? "duration, in ms" : "duration, in us";
    case DT_SETTING_CHOICE:
    case DT_SETTING_WORD:
        return "choice";
    case DT_SETTING_TEXT:
        break;
    }
    return "text";
}

static void write_range(FILE *out, const dt_setting_t *setting)
{
    char text[DT_EXPECTED_MAX];
    if (setting->kind != DT_SETTING_BYTES && setting->kind != DT_SETTING_DURATION) {
        fputs(dt_setting_expected(setting, text), out);
        return;
    }
    fputs(dt_setting_show(setting, setting->min, text, sizeof text), out);
    fprintf(out, " to %s", dt_setting_show(setting, setting->max, text, sizeof text));
    if (setting->auto_word)
        fprintf(out, ", or `%s`", setting->auto_word);
    if (setting->may_be_off)
        fputs(", or `off`", out);
}

static void write_row(FILE *out, const dt_setting_t *setting)
{
    char variable[DT_VARIABLE_MAX];
    fprintf(out, "| `%s` | `%s` | %s | %s | ", dt_setting_variable(setting, variable),
            setting->name, type_name(setting), setting->default_text);
    write_range(out, setting);
    fprintf(out, " | %s | %s |\n", setting->is_shared ? "yes" : "no", setting->help);
}

void dt_config_write_markdown(FILE *out)
{
    fputs(introduction, out);
    fputs("\n| variable | field | type | default | range | shared | what it is |\n"
          "|---|---|---|---|---|---|---|\n",
          out);
    for (int i = 0; i < DT_SETTING_COUNT; i++)
        write_row(out, &dt_settings[i]);
    fputs(launchers, out);
}
