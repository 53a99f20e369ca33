#include "server/support/man_page.hpp"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/join.hpp"

namespace distilld {
namespace {

/// Escapes a text so that roff prints it unchanged.
std::string roff(const std::string& text) {
    std::string out;
    for (const char c : text) {
        const bool starts_line = out.empty() || out.back() == '\n';
        if (starts_line && (c == '.' || c == '\'')) {
            out += "\\&";
        }
        if (c == '\\') {
            out += "\\e";
        } else if (c == '-') {
            out += "\\-";
        } else {
            out += c;
        }
    }
    return out;
}

std::string bold(const std::string& text) {
    return "\\fB" + roff(text) + "\\fR";
}

std::string italic(const std::string& text) {
    return "\\fI" + roff(text) + "\\fR";
}

std::string synopsis(const CommandNode& node) {
    std::string line = bold(full_name(node));
    if (!node.options.empty()) {
        line += " [" + italic("OPTION") + "]...";
    }
    for (const auto& argument : node.arguments) {
        line += argument.required ? " " + italic(argument.names.front()) : " [" + italic(argument.names.front()) + "]";
    }
    if (!node.commands.empty()) {
        line += " " + italic("COMMAND") + " ...";
    }
    return line + "\n";
}

std::string item(const CommandOption& option, bool argument) {
    std::string head = joined(option.names, ", ", argument ? italic : bold);
    if (!argument && option.value.kind != CommandValue::Kind::none) {
        head += " " + italic(option.value.name);
    }
    return ".TP\n" + head + "\n" + roff(option_text(option, argument)) + "\n";
}

std::string body(const CommandNode& node) {
    std::string text;
    for (const auto& argument : node.arguments) {
        text += item(argument, true);
    }
    for (const auto& option : node.options) {
        text += item(option, false);
    }
    return text;
}

/// A heading such as "FILES", then each entry with its meaning.
std::string section(const std::string& title, const std::vector<ManualEntry>& entries) {
    std::string text = entries.empty() ? "" : ".SH " + title + "\n";
    for (const auto& [name, meaning] : entries) {
        text += ".TP\n" + bold(name) + "\n" + roff(meaning) + "\n";
    }
    return text;
}

/// The examples of all commands, without repetitions.
std::string examples(const CommandNode& program) {
    std::string text;
    std::set<std::string> seen;
    for (const auto* node : all_commands(program)) {
        for (const auto& example : node->examples) {
            if (seen.insert(example).second) {
                text += (text.empty() ? ".SH EXAMPLES\n.nf\n" : "") + roff(example) + "\n";
            }
        }
    }
    return text.empty() ? text : text + ".fi\n";
}

}  // namespace

std::string man_page(const CommandNode& program, const std::string& version, const ManualSections& sections) {
    const auto& name = program.path.front();
    std::string title = name;
    std::ranges::transform(title, title.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });

    // The description in the help is "distilld: SUMMARY".
    auto summary = program.description;
    if (summary.starts_with(name + ": ")) {
        summary.erase(0, name.size() + 2);
    }
    std::string page = ".TH " + roff(title) + " 1 \"\" \"" + roff(name + " " + version) + "\" \"User Commands\"\n";
    page += ".SH NAME\n" + roff(name) + " \\- " + roff(summary) + "\n";
    page += ".SH SYNOPSIS\n" + synopsis(program);
    page += ".SH OPTIONS\n" + body(program);
    page += ".SH COMMANDS\n";
    for (const auto* node : all_commands(program)) {
        if (node == &program) {
            continue;
        }
        page += ".SS " + roff(full_name(*node)) + "\n" + synopsis(*node) + ".PP\n" + roff(node->description) + ".\n";
        page += body(*node);
    }
    page += examples(program);
    page += section("ENVIRONMENT", sections.environment);
    page += section("FILES", sections.files);
    if (!program.footer.empty()) {
        page += ".SH NOTES\n" + roff(program.footer) + "\n";
    }
    page += ".SH SEE ALSO\n" + roff(sections.see_also) + "\n";
    return page;
}

}  // namespace distilld
