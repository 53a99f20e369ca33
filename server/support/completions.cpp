#include "server/support/completions.hpp"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/join.hpp"

namespace distilld {
namespace {

using Kind = CommandValue::Kind;

std::string replaced(std::string text, std::string_view from, std::string_view to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
        text.replace(at, from.size(), to);
    }
    return text;
}

/// In single quotes, as bash and zsh read them.
std::string quoted(const std::string& text) {
    return "'" + replaced(text, "'", "'\\''") + "'";
}

std::vector<std::string> option_names(const CommandNode& node) {
    std::vector<std::string> names;
    for (const auto& option : node.options) {
        names.insert(names.end(), option.names.begin(), option.names.end());
    }
    return names;
}

std::vector<std::string> command_names(const CommandNode& node) {
    std::vector<std::string> names;
    names.reserve(node.commands.size());
    for (const auto& command : node.commands) {
        names.push_back(command.path.back());
    }
    return names;
}

/// The commands and the options with a value, each behind the command that it belongs to: "distilld jobs --server". By
/// these a script finds which command is being typed, and does not take an option's value for one.
struct Words {
    std::vector<std::string> commands;
    std::vector<std::string> valued_options;
};

Words words_of(const CommandNode& program) {
    Words words;
    for (const auto* node : all_commands(program)) {
        if (node->path.size() > 1) {
            words.commands.push_back(full_name(*node));
        }
        for (const auto& option : node->options) {
            for (const auto& name : option.names) {
                if (option.value.kind != Kind::none) {
                    words.valued_options.push_back(full_name(*node) + " " + name);
                }
            }
        }
    }
    return words;
}

std::string alternatives(const std::vector<std::string>& texts) {
    return joined(texts, " | ", quoted);
}

std::string identifier(const CommandNode& node) {
    return "_" + replaced(joined(node.path, "_"), "-", "_");
}

// ---- bash

std::string bash_value(const CommandValue& value) {
    switch (value.kind) {
        case Kind::words:
            return "words=" + quoted(joined(value.words, " "));
        case Kind::file:
            return "kind=file";
        case Kind::folder:
            return "kind=directory";
        case Kind::none:
        case Kind::text:
            break;
    }
    return "kind=none";
}

std::string bash_script(const CommandNode& program) {
    const auto& name = program.path.front();
    const auto function = identifier(program);
    const auto words = words_of(program);
    std::string script = "# Completion of " + name + " for bash, written by: " + name + " completions bash\n" +
                         function +
                         "() {\n"
                         "    local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
                         "    local at=" +
                         quoted(name) + " kind= words= options= i\n";
    script +=
        "    # bash takes --option=value for three words.\n"
        "    if [[ $cur == = ]]; then\n"
        "        cur=\n"
        "    elif [[ $before == = ]]; then\n"
        "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
        "    fi\n"
        "    for ((i = 1; i < COMP_CWORD; ++i)); do\n"
        "        case \"$at ${COMP_WORDS[i]}\" in\n"
        "            " +
        alternatives(words.commands) +
        ") at+=\" ${COMP_WORDS[i]}\" ;;\n"
        "            " +
        alternatives(words.valued_options) +
        ")\n"
        "                [[ ${COMP_WORDS[i + 1]} != = ]] || ((++i))\n"
        "                ((++i))\n"
        "                ;;\n"
        "        esac\n"
        "    done\n"
        "    case \"$at $before\" in\n";
    for (const auto* node : all_commands(program)) {
        for (const auto& option : node->options) {
            std::vector<std::string> names;
            names.reserve(option.names.size());
            for (const auto& each : option.names) {
                names.push_back(full_name(*node) + " " + each);
            }
            if (option.value.kind != Kind::none) {
                script += "        " + alternatives(names) + ") " + bash_value(option.value) + " ;;\n";
            }
        }
    }
    script += "        *)\n            case $at in\n";
    for (const auto* node : all_commands(program)) {
        script += "                " + quoted(full_name(*node)) +
                  ") options=" + quoted(joined(option_names(*node), " ")) + " ";
        script += node->commands.empty()
                      ? bash_value(node->arguments.empty() ? CommandValue{} : node->arguments[0].value)
                      : "words=" + quoted(joined(command_names(*node), " "));
        script += " ;;\n";
    }
    script +=
        "            esac\n"
        "            if [[ $cur == -* ]]; then words=$options kind=; fi\n"
        "            ;;\n"
        "    esac\n"
        "    case $kind in\n"
        "        none) COMPREPLY=() ;;\n"
        "        file | directory)\n"
        "            compopt -o filenames 2>/dev/null\n"
        "            mapfile -t COMPREPLY < <(compgen -A \"$kind\" -- \"$cur\")\n"
        "            ;;\n"
        "        *) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\") ;;\n"
        "    esac\n"
        "}\n"
        "complete -F " +
        function + " " + name + "\n";
    return script;
}

// ---- zsh

std::string zsh_text(std::string text) {
    for (const auto* special : {"\\", "[", "]", ":"}) {
        text = replaced(text, special, std::string("\\") + special);
    }
    return text;
}

std::string zsh_value(const CommandValue& value) {
    const auto head = ":" + zsh_text(value.name) + ":";
    switch (value.kind) {
        case Kind::words:
            return head + "(" + joined(value.words, " ") + ")";
        case Kind::file:
            return head + "_files";
        case Kind::folder:
            return head + "_files -/";
        case Kind::none:
            return "";
        case Kind::text:
            break;
    }
    return head + " ";
}

std::string zsh_script(const CommandNode& program) {
    const auto& name = program.path.front();
    std::string script =
        "#compdef " + name + "\n# Completion of " + name + " for zsh, written by: " + name + " completions zsh\n";
    for (const auto* node : all_commands(program)) {
        std::vector<std::string> specs;
        for (const auto& option : node->options) {
            for (const auto& each : option.names) {
                const bool assigned = option.value.kind != Kind::none && each.starts_with("--");
                specs.push_back((option.repeated ? "*" : "") + each + (assigned ? "=" : "") + "[" +
                                zsh_text(option.help) + "]" + zsh_value(option.value));
            }
        }
        for (std::size_t i = 0; i < node->arguments.size(); ++i) {
            specs.push_back(std::to_string(i + 1) + zsh_value(node->arguments[i].value));
        }
        if (!node->commands.empty()) {
            specs.emplace_back("1: :->command");
            specs.emplace_back("*:: :->rest");
        }
        script += identifier(*node) + "() {\n    local context state state_descr line\n    typeset -A opt_args\n" +
                  "    _arguments" + (node->commands.empty() ? "" : " -C");
        for (const auto& spec : specs) {
            script += " \\\n        " + quoted(spec);
        }
        script += "\n";
        if (!node->commands.empty()) {
            script += "    case $state in\n        command)\n            local -a commands=(";
            for (const auto& command : node->commands) {
                script += "\n                " +
                          quoted(command.path.back() + ":" + replaced(command.description, ":", "\\:"));
            }
            script +=
                "\n            )\n            _describe command commands\n            ;;\n"
                "        rest)\n            case $words[1] in\n";
            for (const auto& command : node->commands) {
                script += "                " + command.path.back() + ") " + identifier(command) + " ;;\n";
            }
            script += "            esac\n            ;;\n    esac\n";
        }
        script += "}\n";
    }
    script += "if [[ $funcstack[1] == " + identifier(program) + " ]]; then\n    " + identifier(program) +
              " \"$@\"\nelse\n    compdef " + identifier(program) + " " + name + "\nfi\n";
    return script;
}

// ---- fish

std::string fish_quoted(const std::string& text) {
    return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

std::string fish_list(const std::vector<std::string>& texts) {
    return joined(texts, " ", fish_quoted);
}

std::string fish_value(const CommandValue& value) {
    switch (value.kind) {
        case Kind::words:
            return " -x -a " + fish_quoted(joined(value.words, " "));
        case Kind::file:
            return " -r -F";
        case Kind::folder:
            return " -x -a '(__fish_complete_directories)'";
        case Kind::text:
            return " -x";
        case Kind::none:
            break;
    }
    return "";
}

std::string fish_script(const CommandNode& program) {
    const auto& name = program.path.front();
    const auto words = words_of(program);
    const auto function = "_" + identifier(program) + "_at";
    std::string script = "# Completion of " + name + " for fish, written by: " + name + " completions fish\n" +
                         "function " + function + " --description 'whether this command is being typed'\n" +
                         "    set -l at " + name +
                         "\n    set -l skip 0\n"
                         "    for word in (commandline -opc)[2..-1]\n"
                         "        if test $skip = 1\n"
                         "            set skip 0\n"
                         "            continue\n"
                         "        end\n"
                         "        switch \"$at $word\"\n"
                         "            case " +
                         fish_list(words.commands) +
                         "\n                set at \"$at $word\"\n"
                         "            case " +
                         fish_list(words.valued_options) +
                         "\n                set skip 1\n"
                         "        end\n"
                         "    end\n"
                         "    test \"$at\" = \"$argv\"\n"
                         "end\n"
                         "complete -c " +
                         name + " -f\n";
    for (const auto* node : all_commands(program)) {
        const auto line = "complete -c " + name + " -n " + fish_quoted(function + " " + full_name(*node));
        for (const auto& command : node->commands) {
            script += line + " -a " + command.path.back() + " -d " + fish_quoted(command.description) + "\n";
        }
        if (!node->arguments.empty() && node->arguments[0].value.kind != Kind::text) {
            const auto& value = node->arguments[0].value;
            script += line + (value.kind == Kind::file ? " -F" : replaced(fish_value(value), " -x", "")) + "\n";
        }
        for (const auto& option : node->options) {
            script += line;
            for (const auto& each : option.names) {
                script += each.starts_with("--") ? " -l " + each.substr(2) : " -s " + each.substr(1);
            }
            script += fish_value(option.value) + " -d " + fish_quoted(option.help) + "\n";
        }
    }
    return script;
}

}  // namespace

std::string completion_script(const CommandNode& program, Shell shell) {
    switch (shell) {
        case Shell::bash:
            return bash_script(program);
        case Shell::zsh:
            return zsh_script(program);
        case Shell::fish:
            break;
    }
    return fish_script(program);
}

}  // namespace distilld
