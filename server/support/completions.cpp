#include "server/support/completions.hpp"

#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <string_view>
#include <vector>

namespace distilld {
namespace {

using Kind = CommandValue::Kind;

// Each script asks PROGRAM for the candidates at the cursor, see candidates().

constexpr const char* kBash = R"(# Completion of PROGRAM for bash, written by: PROGRAM completion bash
_PROGRAM() {
    local cur=${COMP_WORDS[COMP_CWORD]} word
    COMPREPLY=()
    [[ $cur != = ]] || cur=
    while IFS=$'\t' read -r word _; do
        case $word in
            :file | :directory)
                compopt -o filenames 2>/dev/null
                mapfile -t COMPREPLY < <(compgen -A "${word#:}" -- "$cur")
                ;;
            *) COMPREPLY+=("$word") ;;
        esac
    done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _PROGRAM PROGRAM
)";

constexpr const char* kZsh = R"(#compdef PROGRAM
# Completion of PROGRAM for zsh, written by: PROGRAM completion zsh
_PROGRAM() {
    local line
    local -a found
    for line in "${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        case $line in
            :file) compset -P '-*='; _files ;;
            :directory) compset -P '-*='; _files -/ ;;
            ?*) found+=("${${line//:/\\:}/$'\t'/:}") ;;
        esac
    done
    (( ! $#found )) || _describe PROGRAM found
}
if [[ $funcstack[1] == _PROGRAM ]]; then
    _PROGRAM "$@"
else
    compdef _PROGRAM PROGRAM
fi
)";

constexpr const char* kFish = R"(# Completion of PROGRAM for fish, written by: PROGRAM completion fish
function __PROGRAM_candidates
    set -l words (commandline -opc)
    set -l word (commandline -ct | string collect --allow-empty)
    set -l before (string match -r -- '^-[^=]*=' $word)
    set -l path (string replace -r -- '^-[^=]*=' '' $word)
    for line in ($words[1] __complete $words[2..-1] $word 2>/dev/null)
        switch $line
            case :file
                printf '%s\n' "$before"(__fish_complete_path $path)
            case :directory
                printf '%s\n' "$before"(__fish_complete_directories $path)
            case '*'
                echo $line
        end
    end
end
complete -c PROGRAM -f -a '(__PROGRAM_candidates)'
)";

const CommandOption* option_named(const CommandNode& node, std::string_view name) {
    const auto found = std::ranges::find_if(node.options, [name](const CommandOption& option) {
        return std::ranges::find(option.names, name) != option.names.end();
    });
    return found == node.options.end() ? nullptr : &*found;
}

/// Collects the candidates that begin with the typed text.
class Candidates {
  public:
    explicit Candidates(std::string_view typed) : typed_(typed) {}

    void add(const std::string& word, const std::string& help = "") {
        if (word.starts_with(typed_)) {
            lines_ += word + (help.empty() ? "" : "\t" + help) + "\n";
        }
    }

    /// `before`: the part of the typed word that precedes the value.
    void add_value(const CommandValue& value, const std::string& before) {
        for (const std::string& word : value.words) {
            add(before + word);
        }
        lines_ += value.kind == Kind::file ? ":file\n" : value.kind == Kind::folder ? ":directory\n" : "";
    }

    [[nodiscard]] const std::string& lines() const { return lines_; }

  private:
    std::string_view typed_;
    std::string lines_;
};

}  // namespace

std::string candidates(const CommandNode& program, std::span<const std::string> words) {
    const CommandNode* node = &program;
    const CommandOption* option = nullptr;  // the next word is its value
    std::size_t arguments = 0;
    std::string typed = words.empty() ? "" : words.back();
    for (const std::string& word : words.first(words.empty() ? 0 : words.size() - 1)) {
        if (option != nullptr) {
            option = word == "=" ? option : nullptr;  // bash splits --option=value into three words
            continue;
        }
        const CommandOption* named = option_named(*node, word);
        const auto command = std::ranges::find(node->commands, word, [](const auto& one) { return one.path.back(); });
        if (named != nullptr) {
            option = named->value.kind == Kind::none ? nullptr : named;
        } else if (command != node->commands.end()) {
            node = &*command;
        } else if (!word.starts_with('-')) {
            ++arguments;
        }
    }
    std::string before;
    if (option != nullptr && typed == "=") {
        typed.clear();
    }
    if (const auto equals = typed.find('='); option == nullptr && equals != std::string::npos) {
        before = typed.substr(0, equals + 1);
        option = option_named(*node, typed.substr(0, equals));
    }
    Candidates found(typed);
    if (option != nullptr) {
        found.add_value(option->value, before);
    } else if (typed.starts_with('-')) {
        for (const CommandOption& each : node->options) {
            for (const std::string& name : each.names) {
                found.add(name, each.help);
            }
        }
    } else if (arguments < node->arguments.size()) {
        found.add_value(node->arguments[arguments].value, "");
    } else if (!node->arguments.empty() && node->arguments.back().repeated) {
        found.add_value(node->arguments.back().value, "");
    } else {
        for (const CommandNode& command : node->commands) {
            found.add(command.path.back(), command.description);
        }
    }
    return found.lines();
}

std::string completion_script(const std::string& program, Shell shell) {
    std::string script = shell == Shell::bash ? kBash : shell == Shell::zsh ? kZsh : kFish;
    boost::algorithm::replace_all(script, "PROGRAM", program);
    return script;
}

}  // namespace distilld
