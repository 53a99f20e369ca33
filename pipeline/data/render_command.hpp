#pragma once

#include <filesystem>
#include <string>

namespace distilld {

/// The command that renders the conversations of a JSONL file to ids, with the chat template of `tokenizer_folder`; a
/// placeholder if that is empty. `prompts`: of rollouts.
[[nodiscard]] std::string render_command(const std::filesystem::path& file, const std::string& tokenizer_folder,
                                         bool prompts);

}  // namespace distilld
