#include "server/settings/settings_load.hpp"

#include <algorithm>
#include <boost/algorithm/string/join.hpp>
#include <boost/algorithm/string/split.hpp>
#include <cctype>
#include <optional>
#include <string_view>

#include "api/kinds/text_checks.hpp"
#include "base/error.hpp"
#include "server/settings/settings_file.hpp"

namespace distilld {
namespace {

/// The setting's variable, or the older one if that is not set.
std::optional<std::pair<std::string, std::string>> variable_of(const SettingsInput& input,
                                                               const SettingsSection& section, const Setting& setting) {
    for (const auto& name : {variable_name(section, setting), std::string(setting.older_variable)}) {
        const auto found = input.environment.find(name);
        if (found != input.environment.end() && !found->second.empty()) {
            return *found;
        }
    }
    return std::nullopt;
}

std::string upper(std::string_view text) {
    std::string made(text);
    std::ranges::transform(made, made.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return made;
}

/// One word may hold several texts of a list, separated by commas.
boost::json::value value_of(const Setting& setting, std::vector<std::string> words) {
    if (setting.kind->shape() == api::FieldShape::list_of_texts) {
        const auto all = boost::algorithm::join(words, ",");
        boost::algorithm::split(words, all, [](char c) { return c == ','; });
        std::erase(words, "");
    }
    return setting.kind->value_of(words);
}

/// Applies one layer after another to the defaults.
class Loader {
  public:
    Loader(const SettingsInput& input, const SettingsTable& table) : input_(input), table_(table) {}

    LoadedSettings load() {
        for_each([this](const SettingsSection& section, const Setting& setting) {
            result_.sources[dotted_name(section, setting)];
        });
        if (!input_.file.empty()) {
            read_file();
        }
        for_each([this](const SettingsSection& section, const Setting& setting) {
            if (const auto variable = variable_of(input_, section, setting)) {
                take(dotted_name(section, setting), setting, value_of(setting, {variable->second}),
                     input_.working_directory, {SettingSource::Kind::environment, variable->first});
            }
        });
        warn_of_misspelt_variables();
        for_each([this](const SettingsSection& section, const Setting& setting) {
            const auto given = input_.flags.find(dotted_name(section, setting));
            if (given != input_.flags.end()) {
                take(given->first, setting, value_of(setting, given->second), input_.working_directory,
                     {SettingSource::Kind::flag, flag_name(setting)});
            }
        });
        if (wrong_.violations.empty()) {
            check_sections();
        }
        if (!wrong_.violations.empty()) {
            return wrong_;
        }
        return std::move(result_);
    }

  private:
    template <class Function>
    void for_each(Function function) const {
        for (const auto& section : table_.sections) {
            for (const auto& setting : section.settings) {
                function(section, setting);
            }
        }
    }

    void read_file() {
        auto file = read_settings_file(input_.file, input_.working_directory, table_);
        wrong_.violations = std::move(file.violations);
        // Paths in a file are relative to its folder, so that it works from any directory.
        const auto base = (input_.working_directory / input_.file).parent_path();
        for (const auto& [name, place, value] : file.values) {
            take(name, *table_.setting(name), value, base, {SettingSource::Kind::file, place});
        }
    }

    void take(const std::string& name, const Setting& setting, const boost::json::value& value,
              const std::filesystem::path& base, SettingSource source) {
        auto wrong = read_setting(setting, value, base, result_.settings);
        for (auto& detail : wrong) {
            wrong_.violations.push_back({source.place, name, std::move(detail)});
        }
        if (wrong.empty()) {
            result_.sources[name] = std::move(source);
        }
    }

    void check_sections() {
        for (const auto& section : table_.sections) {
            if (section.check == nullptr) {
                continue;
            }
            for (auto& [name, detail] : section.check(result_.settings)) {
                wrong_.violations.push_back({result_.sources[name].place, name, std::move(detail)});
            }
        }
        for_each([this](const SettingsSection& section, const Setting& setting) {
            const auto name = dotted_name(section, setting);
            if (!setting.required.empty() && result_.sources[name].kind == SettingSource::Kind::standard) {
                result_.missing.push_back(name + ": is required, " + std::string(setting.required) + ": " +
                                          ways_to_give(section, setting));
            }
        });
    }

    /// Only a warning: Kubernetes sets variables of this form for a service "distilld-server".
    void warn_of_misspelt_variables() {
        for (const auto& section : table_.sections) {
            const auto prefix = "DISTILLD_" + upper(section.name) + "_";
            std::vector<std::string> known;
            known.reserve(section.settings.size());
            for (const auto& setting : section.settings) {
                known.push_back(upper(setting.name));
            }
            for (auto found = input_.environment.lower_bound(prefix);
                 found != input_.environment.end() && found->first.starts_with(prefix); ++found) {
                const auto rest = found->first.substr(prefix.size());
                const auto near = api::closest(rest, known);
                if (near && *near != rest) {
                    result_.warnings.push_back("environment variable " + found->first +
                                               " is not a setting; did you mean " + prefix + *near + "?");
                }
            }
        }
    }

    const SettingsInput& input_;
    const SettingsTable& table_;
    EffectiveSettings result_;
    SettingsViolations wrong_;
};

}  // namespace

std::string to_text(const SettingSource& source) {
    switch (source.kind) {
        case SettingSource::Kind::standard:
            return "default";
        case SettingSource::Kind::file:
            return "file " + source.place;
        case SettingSource::Kind::environment:
            return "environment " + source.place;
        case SettingSource::Kind::flag:
            return "flag " + source.place;
    }
    return "default";
}

std::string describe(const SettingsViolations& violations) {
    return api::text_of_first(violations.violations, "\n", [](const SettingsViolation& one) {
        return (one.place.empty() ? "" : one.place + ": ") + (one.name.empty() ? "" : one.name + ": ") + one.detail;
    });
}

void throw_exception_from_error(const SettingsViolations& violations, const boost::source_location&) {
    throw ErrorException(invalid_input(describe(violations)));
}

LoadedSettings load_settings(const SettingsInput& input) {
    return Loader(input, settings_table()).load();
}

}  // namespace distilld
