#include "server/settings/settings_table.hpp"

namespace distilld {

SettingsSection teacher_section() {
    return {.name = "teacher",
            .help = "what jobs may use to reach their teachers",
            .settings = {
                {.name = "key_root",
                 .kind = api::make_path(&TeacherSettings::key_root, api::PathUse::reads, "folder", true),
                 .help = "folder below which specs may name files of teachers' keys (teacher.api_key_file)",
                 .flag = "--key-root",
                 .older_variable = "DISTILLD_KEYS_DIR"},
            }};
}

}  // namespace distilld
