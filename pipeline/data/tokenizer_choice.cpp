#include "pipeline/data/tokenizer_choice.hpp"

#include <string_view>
#include <system_error>
#include <utility>

#include "base/files/open_file.hpp"
#include "pipeline/data/tokenizer/byte_tokenizer.hpp"
#include "pipeline/data/tokenizer/special_token_files.hpp"

namespace distilld {

namespace {

namespace fs = std::filesystem;

constexpr const char* kPointer = "/student/tokenizer";

/// Files that show that a folder has a tokenizer.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json",
                                           "merges.txt",     "vocab.txt",       "tekken.json"};

std::string tokenizer_file_in(const fs::path& folder) {
    std::error_code ignored;
    for (const char* name : kTokenizerFiles) {
        if (fs::exists(folder / name, ignored)) {
            return name;
        }
    }
    return {};
}

std::string advice() {
    return "give student.tokenizer a folder with a tokenizer.json of type BPE, or the data as ready-made "
           "{\"input_ids\"}";
}

/// Reads the folder's tokenizer into `choice`. `own`: the folder is the student's.
Result<void> take_folder(const fs::path& folder, bool own, TokenizerChoice& choice) {
    choice.folder = folder;
    choice.of_the_model = own;
    Result<std::unique_ptr<Tokenizer>> loaded = load_tokenizer(folder);
    if (!loaded && loaded.error().kind == ErrorKind::path_not_allowed) {
        return invalid_at(kPointer, loaded.error());
    }
    if (!loaded) {
        choice.refusal = std::string(kPointer) + ": " + loaded.error().message + "; " + advice();
    } else if (*loaded == nullptr) {
        choice.refusal = std::string(kPointer) + ": " + folder.string() + " has a " + tokenizer_file_in(folder) +
                         " and no tokenizer.json; " + advice();
    } else {
        choice.tokenizer = std::move(*loaded);
    }
    if (own && choice.tokenizer == nullptr) {
        return {};  // the special tokens of its config.json apply
    }
    Result<std::optional<SpecialTokens>> special = read_special_tokens(folder);
    if (!special) {
        return invalid_at(kPointer, special.error());
    }
    choice.special = std::move(*special);
    if (!choice.special && choice.tokenizer != nullptr && choice.tokenizer->end_of_text()) {
        choice.special = SpecialTokens{std::nullopt, {*choice.tokenizer->end_of_text()}, std::nullopt};
    }
    return {};
}

std::string size_text(const Tokenizer& tokenizer) {
    return tokenizer.kind() + ", " + std::to_string(tokenizer.vocabulary_size()) + " tokens";
}

}  // namespace

std::string TokenizerChoice::description(bool read_text) const {
    if (read_text && tokenizer != nullptr) {
        return folder.empty() ? size_text(*tokenizer) : folder.string() + " (" + size_text(*tokenizer) + ")";
    }
    return folder.empty() ? "none: the data has ids"
                          : "none: the data has ids; the export copies the files in " + folder.string();
}

Result<TokenizerChoice> choose_tokenizer(const TokenizerWish& wish) {
    TokenizerChoice choice;
    Result<void> taken;
    if (!wish.named.empty()) {
        if (tokenizer_file_in(wish.named).empty()) {
            return invalid_input(std::string(kPointer) + ": " + wish.named.string() +
                                 " is not a folder with a tokenizer.json");
        }
        taken = take_folder(wish.named, false, choice);
    } else if (!wish.model.empty() && !tokenizer_file_in(wish.model).empty()) {
        taken = take_folder(wish.model, true, choice);
    } else if (wish.vocabulary_size >= kByteVocabularySize && wish.vocabulary_size <= kMaxByteVocabulary) {
        choice.tokenizer = make_byte_tokenizer();
        choice.special = SpecialTokens{std::nullopt, {kByteEndOfText}, std::nullopt};
    } else {
        choice.refusal = std::string(kPointer) + ": " + "there is none, and the student's vocabulary of " +
                         std::to_string(wish.vocabulary_size) + " is not that of the byte tokenizer, " +
                         std::to_string(kByteVocabularySize) + "; " + advice();
    }
    if (!taken) {
        return taken.error();
    }
    return choice;
}

}  // namespace distilld
