#include "pipeline/data/teacher_tokenizer.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distilld {
namespace {

constexpr std::string_view kField = "/teacher/tokenizer";

std::string message_about_field(std::string message) {
    constexpr std::string_view kOther = "/student/tokenizer";
    if (message.starts_with(kOther)) {
        message.replace(0, kOther.size(), kField);
    }
    return message.substr(0, message.find("; give student.tokenizer")) +
           "; give it a folder with a tokenizer.json of type BPE";
}

TokenTable table_of(const Tokenizer& tokenizer) {
    TokenTable table;
    table.end_of_text = tokenizer.end_of_text();
    table.frame = tokenizer.encode("");
    table.bytes.reserve(tokenizer.vocabulary_size());
    for (std::uint32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
        table.bytes.push_back(tokenizer.token_bytes(static_cast<std::int32_t>(id)));
    }
    const std::vector<std::int32_t> word = tokenizer.encode("a");
    const auto first = std::ranges::mismatch(word, table.frame).in1;
    table.adds_space = first != word.end() && tokenizer.token_bytes(*first).starts_with(' ');
    return table;
}

}  // namespace

Result<std::shared_ptr<TeacherTokenizer>> load_teacher_tokenizer(const std::filesystem::path& folder,
                                                                 const TokenizerChoice& student) {
    if (student.tokenizer == nullptr) {
        return invalid_input(std::string(kField) + ": needs a tokenizer of the student, too: " + student.refusal);
    }
    Result<TokenizerChoice> choice = choose_tokenizer({folder, {}, 0});
    if (!choice) {
        return Error{choice.error().kind, message_about_field(choice.error().message)};
    }
    if (choice->tokenizer == nullptr) {
        return invalid_input(message_about_field(choice->refusal));
    }
    auto made = std::make_shared<TeacherTokenizer>();
    made->choice = std::move(*choice);
    try {
        made->alignment =
            std::make_shared<const TokenAlignment>(table_of(*student.tokenizer), table_of(*made->choice.tokenizer));
    } catch (const ErrorException& of_its_rules) {
        return invalid_input(std::string(kField) + ": " + of_its_rules.error().message);
    }
    if (made->alignment->common_ids().empty()) {
        return invalid_input(std::string(kField) + ": no token of " + folder.string() +
                             " stands for the same bytes as one of the student's: nothing can be learnt from it");
    }
    return made;
}

}  // namespace distilld
