#include "pipeline/data/render_command.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace distilld {
namespace {

/// The command, which names the program where it lies, with what it is called instead.
std::string command(const std::filesystem::path& file, const std::string& tokenizer, bool prompts = false) {
    const std::string made = render_command(file, tokenizer, prompts);
    constexpr std::string_view kPython = "python3 ";
    const auto end = made.find(" --tokenizer");
    EXPECT_TRUE(made.starts_with(kPython));
    const std::filesystem::path script = made.substr(kPython.size(), end - kPython.size());
    EXPECT_TRUE(script.is_absolute() && std::filesystem::is_regular_file(script)) << script;
    EXPECT_EQ(script.filename(), "render_chat.py");
    return "PROGRAM" + made.substr(end);
}

TEST(RenderCommand, CanBeTypedAsItIs) {
    EXPECT_EQ(command("/data/chat.jsonl.gz", "/models/qwen"),
              "PROGRAM --tokenizer /models/qwen /data/chat.jsonl.gz /data/chat.ids.jsonl");
    EXPECT_EQ(command("chat.jsonl", "/models/qwen", true),
              "PROGRAM --tokenizer /models/qwen --prompts chat.jsonl chat.ids.jsonl");
    EXPECT_EQ(command("chats", ""), "PROGRAM --tokenizer TOKENIZER_FOLDER chats chats.ids.jsonl");
    EXPECT_EQ(command("/my data/it's.jsonl", "/a b"),
              R"(PROGRAM --tokenizer '/a b' '/my data/it'\''s.jsonl' '/my data/it'\''s.ids.jsonl')");
}

}  // namespace
}  // namespace distilld
