#include "server/settings/settings_table.hpp"

#include <algorithm>
#include <cctype>

#include "api/spec_paths.hpp"

namespace distilld {

const SettingsSection* SettingsTable::section(std::string_view name) const {
    const auto found = std::ranges::find(sections, name, &SettingsSection::name);
    return found == sections.end() ? nullptr : &*found;
}

const Setting* SettingsTable::setting(std::string_view dotted) const {
    const auto dot = dotted.find('.');
    const auto* in = dot == std::string_view::npos ? nullptr : section(dotted.substr(0, dot));
    if (in == nullptr) {
        return nullptr;
    }
    const auto found = std::ranges::find(in->settings, dotted.substr(dot + 1), &Setting::name);
    return found == in->settings.end() ? nullptr : &*found;
}

std::string dotted_name(const SettingsSection& section, const Setting& setting) {
    return std::string(section.name) + "." + std::string(setting.name);
}

std::string flag_name(const Setting& setting) {
    auto name = setting.flag.empty() ? "--" + std::string(setting.name) : std::string(setting.flag);
    std::ranges::replace(name, '_', '-');
    return name;
}

std::string variable_name(const SettingsSection& section, const Setting& setting) {
    std::string name = "DISTILLD_" + std::string(section.name) + "_" + std::string(setting.name);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return name;
}

std::string ways_to_give(const SettingsSection& section, const Setting& setting) {
    const bool takes_word = setting.kind->shape() != api::FieldShape::boolean;
    return flag_name(setting) + (takes_word ? " " + setting.kind->type_name() : "") + ", " +
           variable_name(section, setting) + ", or " + std::string(setting.name) + " in [" + std::string(section.name) +
           "] of the file of --config";
}

std::vector<std::string> read_setting(const Setting& setting, const boost::json::value& value,
                                      const std::filesystem::path& base, ServiceSettings& settings) {
    std::vector<api::Violation> violations;
    if (setting.kind.read(value, settings, {.pointer = "", .violations = violations, .hides_values = true})) {
        setting.kind.change_paths(
            settings, [&base](const std::string& path) { return api::normal_path((base / path).string()).string(); });
    }
    std::vector<std::string> wrong;
    for (const auto& [pointer, code, detail, parameter] : violations) {
        const auto entry = pointer.empty() ? "" : "entry " + std::to_string(std::stoul(pointer.substr(1)) + 1) + " ";
        wrong.push_back(entry + detail);
    }
    return wrong;
}

SettingsSection log_section() {
    return {.name = "log",
            .help = "log lines, which go to stderr",
            .settings = {
                {.name = "json",
                 .kind = api::make_boolean(&LogSettings::json),
                 .help = "write log lines as JSON objects",
                 .flag = "--log-json"},
                {.name = "level",
                 .kind = api::make_choice(&LogSettings::level, log::kLevelNames),
                 .help = "lowest level that is written",
                 .flag = "--log-level"},
            }};
}

SettingsSection teacher_section() {
    return {.name = "teacher",
            .help = "what jobs may use to reach their teachers",
            .settings = {
                {.name = "key_root",
                 .kind = api::make_path(&TeacherSettings::key_root, api::PathUse::reads, "folder", true),
                 .help = "folder below which specs may name files of teachers' keys (teacher.api_key_file)",
                 .older_variable = "DISTILLD_KEYS_DIR"},
            }};
}

const SettingsTable& settings_table() {
    static const SettingsTable table{{server_section(), jobs_section(), log_section(), teacher_section(),
                                      security_section(), launcher_section(), webhooks_section()}};
    return table;
}

}  // namespace distilld
