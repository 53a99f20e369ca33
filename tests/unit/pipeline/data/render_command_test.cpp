#include "pipeline/data/render_command.hpp"

#include <gtest/gtest.h>

namespace distilld {
namespace {

TEST(RenderCommand, CanBeTypedAsItIs) {
    EXPECT_EQ(render_command("/data/chat.jsonl.gz", "/models/qwen"),
              "python3 tools/render_chat.py --tokenizer /models/qwen /data/chat.jsonl.gz /data/chat.ids.jsonl");
    EXPECT_EQ(render_command("chats", ""),
              "python3 tools/render_chat.py --tokenizer TOKENIZER_FOLDER chats chats.ids.jsonl");
    EXPECT_EQ(
        render_command("/my data/it's.jsonl", "/a b"),
        R"(python3 tools/render_chat.py --tokenizer '/a b' '/my data/it'\''s.jsonl' '/my data/it'\''s.ids.jsonl')");
}

}  // namespace
}  // namespace distilld
