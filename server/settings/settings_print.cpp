#include "server/settings/settings_print.hpp"

#include "api/spec_docs.hpp"
#include "base/json_text.hpp"

namespace distilld {
namespace {

/// Texts, numbers, booleans and lists have the same form in TOML as in JSON.
std::string toml_value(const Setting& setting, const ServiceSettings& settings) {
    return to_text(setting.kind.show(settings));
}

std::string default_text(const Setting& setting) {
    if (!setting.required.empty()) {
        return "required";
    }
    const auto text = toml_value(setting, ServiceSettings{});
    return text == "\"\"" || text == "[]" ? "none" : text;
}

std::string line_of(const Setting& setting, const EffectiveSettings& effective, const SettingSource& source) {
    const auto name = std::string(setting.name) + " = ";
    if (!setting.required.empty() && source.kind == SettingSource::Kind::standard) {
        return "# " + name + "…  # not given\n";
    }
    return name + toml_value(setting, effective.settings) + "  # " + to_text(source) + "\n";
}

std::string table_of(const SettingsSection& section) {
    std::string text = "| setting | values | default | flag | meaning |\n| --- | --- | --- | --- | --- |\n";
    for (const auto& setting : section.settings) {
        const auto initial = default_text(setting);
        const bool word = initial == "required" || initial == "none";
        auto variable = setting.older_variable.empty()
                            ? std::string()
                            : "; also `" + std::string(setting.older_variable) + "` of the environment";
        text += "| `" + dotted_name(section, setting) + "` | " + setting.kind->plain_values() + " | " +
                (word ? initial : "`" + initial + "`") + " | `" + flag_name(setting) + "` | " +
                std::string(setting.help) + variable + " |\n";
    }
    return text;
}

}  // namespace

std::string settings_toml(const EffectiveSettings& effective) {
    std::string text = "# Settings of distilld serve. The comment after each value names its source.\n";
    for (const auto& section : settings_table().sections) {
        text += "\n# " + std::string(section.help) + "\n[" + std::string(section.name) + "]\n";
        for (const auto& setting : section.settings) {
            text += "\n# " + std::string(setting.help) + "\n# " + setting.kind->plain_values() + "; default " +
                    default_text(setting) + "\n" +
                    line_of(setting, effective, effective.sources.at(dotted_name(section, setting)));
        }
    }
    return text;
}

Result<std::string> with_settings_tables(std::string markdown) {
    for (const auto& section : settings_table().sections) {
        const auto replaced = api::replace_between(markdown, "<!-- settings of " + std::string(section.name) + " -->",
                                                   "<!-- end of settings -->", table_of(section));
        if (!replaced) {
            return replaced.error();
        }
    }
    return markdown;
}

}  // namespace distilld
