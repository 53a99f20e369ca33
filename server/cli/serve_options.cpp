#include "server/cli/serve_options.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string_view>

#include "base/json_text.hpp"

namespace distilld::cli {
namespace {

std::map<std::string, std::string> our_environment() {
    std::map<std::string, std::string> variables;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        const auto equals = text.find('=');
        if (text.starts_with("DISTILLD_") && equals != std::string_view::npos) {
            variables.emplace(text.substr(0, equals), text.substr(equals + 1));
        }
    }
    return variables;
}

/// "jobs that run at once (1 to 1024)"
std::string help_of(const Setting& setting) {
    const auto shape = setting.kind->shape();
    const auto type = setting.kind->type_name();
    auto help = std::string(setting.help);
    if (shape == api::FieldShape::list_of_texts) {
        help += "; may be repeated";
    } else if (!setting.kind->path_use() && setting.kind->plain_values() != type && !type.starts_with('{')) {
        help += " (" + setting.kind->plain_values() + ")";
    }
    return setting.required.empty() ? help : help + "; must be given, here or otherwise";
}

void add_flag(CLI::App& serve, const Setting& setting, ServeFlags::Given& given) {
    const auto name = std::string(setting.flag);
    const auto shape = setting.kind->shape();
    CLI::Option* option = nullptr;
    if (shape == api::FieldShape::boolean) {
        option = serve.add_flag(name, given.boolean, help_of(setting));
    } else {
        option = serve.add_option(name, given.words, help_of(setting))
                     ->allow_extra_args(false)
                     ->type_name(setting.kind->type_name());
        if (shape != api::FieldShape::list_of_texts) {
            option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::Throw);
        }
        const auto initial = setting.kind.show(ServiceSettings{});
        const auto text = initial.is_string() ? std::string(initial.get_string()) : to_text(initial);
        if (!text.empty() && shape != api::FieldShape::list_of_texts) {
            option->default_str(text);
        }
    }
    given.option = option;
}

}  // namespace

void add_serve_options(CLI::App& serve, ServeFlags& flags) {
    serve
        .add_option("--config", flags.config,
                    "TOML file with settings; environment variables DISTILLD_SECTION_NAME and flags take precedence")
        ->type_name("FILE");
    serve.add_flag("--print-config", flags.print_config,
                   "print the effective settings as such a file, with the source of each, and exit");
    for (const auto& section : settings_table().sections) {
        for (const auto& setting : section.settings) {
            if (!setting.flag.empty()) {
                auto& given = flags.settings.emplace_back();
                given.name = dotted_name(section, setting);
                add_flag(serve, setting, given);
            }
        }
    }
}

LoadedSettings serve_settings(const ServeFlags& flags) {
    SettingsInput input;
    input.file = flags.config;
    input.environment = our_environment();
    input.working_directory = std::filesystem::current_path();
    for (const auto& given : flags.settings) {
        if (given.option->count() == 0) {
            continue;
        }
        const bool boolean = settings_table().setting(given.name)->kind->shape() == api::FieldShape::boolean;
        input.flags[given.name] = boolean ? std::vector<std::string>{given.boolean ? "true" : "false"} : given.words;
    }
    return load_settings(input);
}

}  // namespace distilld::cli
