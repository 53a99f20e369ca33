// Manual page and completions say what the help says, of every command and option.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "distilld_version.hpp"
#include "server/cli/command_line.hpp"
#include "server/support/completions.hpp"
#include "server/support/man_page.hpp"
#include "tests/unit/server/cli/all_commands.hpp"

namespace distilld::cli {
namespace {

using ::testing::HasSubstr;

std::string printed(const std::vector<std::string>& arguments) {
    const auto line = parse_command_line(arguments);
    EXPECT_EQ(line.exit_code, kDone);
    EXPECT_EQ(line.err, "");
    EXPECT_FALSE(line.command.has_value());
    return line.out;
}

std::string spaced(const std::vector<std::string>& command) {
    std::string text = "distilld";
    for (const auto& word : command) {
        text += " " + word;
    }
    return text;
}

/// The long options that the help of a command lists at the beginning of its lines.
std::set<std::string> options_in_help(std::vector<std::string> command) {
    command.emplace_back("--help");
    const auto help = printed(command);
    std::set<std::string> options;
    const std::regex pattern("\n  (?:-[a-z],)?(--[a-z-]+)");
    for (std::sregex_iterator match(help.begin(), help.end(), pattern); match != std::sregex_iterator(); ++match) {
        options.insert((*match)[1]);
    }
    return options;
}

/// The part of a text between what begins a command's section and what begins the next one.
std::string section(const std::string& text, const std::string& begin, const std::string& end) {
    const auto from = text.find(begin);
    EXPECT_NE(from, std::string::npos) << begin;
    return text.substr(from, text.find(end, from + begin.size()) - from);
}

TEST(CommandDocs, HoldEachOptionOfEachCommand) {
    const auto man = printed({"man"});
    const auto bash = printed({"completion", "bash"});
    const auto zsh = printed({"completion", "zsh"});
    const auto fish = printed({"completion", "fish"});
    std::size_t options = 0;
    for (const auto& command : test::kAllCommands) {
        const auto name = spaced(command);
        const auto underscored = "_" + std::regex_replace(name, std::regex(" "), "_");
        const auto man_section = section(man, command.empty() ? ".SH OPTIONS\n" : ".SS " + name + "\n", "\n.S");
        const auto bash_line = section(bash, "'" + name + "') options=", ";;");
        const auto zsh_function = section(zsh, underscored + "() {", "\n}");
        for (const auto& option : options_in_help(command)) {
            ++options;
            EXPECT_THAT(man_section, HasSubstr("\\fB" + std::regex_replace(option, std::regex("-"), "\\-") + "\\fR"))
                << name;
            EXPECT_THAT(bash_line, ::testing::ContainsRegex(option + "[ ']")) << name;
            EXPECT_THAT(zsh_function, ::testing::ContainsRegex("'[*]?" + option + "(=|\\[)")) << name;
            EXPECT_THAT(fish, ::testing::ContainsRegex("_at " + name + "'[^\n]* -l " + option.substr(2) + " ")) << name;
        }
    }
    EXPECT_GT(options, 50U);
}

TEST(CommandDocs, ManualPageTellsVersionDefaultsRangesAndExitCodes) {
    const auto man = printed({"man"});
    EXPECT_THAT(man, ::testing::StartsWith(".TH DISTILLD 1 \"\" \"distilld " + std::string(kVersion) + "\""));
    EXPECT_THAT(man, HasSubstr("before the job fails (0 to 1000); default: 3"));
    EXPECT_THAT(man, HasSubstr("130 interrupted"));
    EXPECT_THAT(man, HasSubstr("\\fBdistilld run\\fR [\\fIOPTION\\fR]... \\fISPEC\\fR"));
}

TEST(CommandDocs, OfAnotherProgramAndOfTextThatRoffOrAShellWouldTakeForItsOwn) {
    CLI::App app{"tool: does it", "tool"};
    bool all = false;
    app.add_flag("--all", all, ".of it: a \\ in 'quotes' [and] more");
    std::string form;
    app.add_option("--form", form, "which")->check(CLI::IsMember({"a", "b"}));
    const auto tree = command_tree(app);
    EXPECT_THAT(man_page(tree, "9", "other(1)"), HasSubstr("\\&.of it: a \\e in"));
    EXPECT_THAT(completion_script(tree, Shell::zsh),
                HasSubstr("'--all[.of it\\: a \\\\ in '\\''quotes'\\'' \\[and\\] more]'"));
    EXPECT_THAT(completion_script(tree, Shell::fish), HasSubstr("-d '.of it: a \\\\ in \\'quotes\\' [and] more'"));
    EXPECT_THAT(completion_script(tree, Shell::bash), HasSubstr("'tool --form') words='a b'"));
}

TEST(CommandDocs, ShellsThatAreNotKnownAreRefused) {
    const auto line = parse_command_line({"completion", "tcsh"});
    EXPECT_EQ(line.exit_code, kWrongUsage);
    EXPECT_THAT(line.err, HasSubstr("tcsh"));
}

}  // namespace
}  // namespace distilld::cli
