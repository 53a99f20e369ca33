#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/utf8.hpp"
#include "pipeline/data/tokenizer/added_tokens.hpp"
#include "pipeline/data/tokenizer/bpe.hpp"
#include "pipeline/data/tokenizer/byte_tokenizer.hpp"
#include "pipeline/data/tokenizer/component.hpp"
#include "pipeline/data/tokenizer/normalizer.hpp"
#include "pipeline/data/tokenizer/post_processor.hpp"
#include "pipeline/data/tokenizer/pre_tokenizer.hpp"
#include "pipeline/data/tokenizer/special_token_files.hpp"
#include "pipeline/data/tokenizer/token_decoder.hpp"
#include "pipeline/data/tokenizer/tokenizer.hpp"

namespace distilld {

namespace json = boost::json;
namespace fs = std::filesystem;

namespace {

struct Components {
    std::vector<AddedToken> added;
    Normalizer normalizer;                        // empty: none
    std::unique_ptr<PreTokenizer> pre_tokenizer;  // null: none
    std::optional<Bpe> model;
    TokenFrame frame;
    TokenDecoder decoder;  // empty: none
    std::optional<std::int32_t> end_of_text;
};

class JsonTokenizer final : public Tokenizer {
  public:
    explicit JsonTokenizer(Components components)
        : parts_(std::move(components)),
          as_written_(parts_.added, false, parts_.normalizer),
          normalized_(parts_.added, true, parts_.normalizer) {
        size_ = parts_.model->end_id();
        for (const AddedToken& token : parts_.added) {
            size_ = std::max(size_, static_cast<std::uint32_t>(token.id) + 1);
            content_of_.emplace(token.id, token.content);
            if (token.special) {
                special_.insert(token.id);
            }
        }
    }

    std::vector<std::int32_t> encode(std::string_view text) const override {
        std::vector<std::int32_t> ids;
        ids.reserve(text.size() / 3 + parts_.frame.before.size() + parts_.frame.behind.size());
        ids = parts_.frame.before;
        append_ids(text, ids);
        ids.insert(ids.end(), parts_.frame.behind.begin(), parts_.frame.behind.end());
        return ids;
    }

    std::vector<std::int32_t> encode_bare(std::string_view text) const override {
        std::vector<std::int32_t> ids;
        append_ids(text, ids);
        return ids;
    }

    bool is_special(std::int32_t id) const override { return special_.contains(id); }

    std::string decode(const std::vector<std::int32_t>& ids) const override {
        std::vector<std::string> tokens;
        tokens.reserve(ids.size());
        std::size_t bytes = 0;
        for (const std::int32_t id : ids) {
            bytes += tokens.emplace_back(token_of(id)).size();
        }
        if (parts_.decoder) {
            parts_.decoder(tokens, max_grown_bytes(bytes));
        }
        std::string text;
        for (const std::string& token : tokens) {
            // Without a decoder, `tokenizers` joins tokens with spaces.
            text += !parts_.decoder && !text.empty() ? " " + token : token;
        }
        return text;
    }

    std::string token_bytes(std::int32_t id) const override {
        const auto added = content_of_.find(id);
        return added != content_of_.end() ? added->second : parts_.model->text(id);
    }

    std::uint32_t vocabulary_size() const override { return size_; }
    std::optional<std::int32_t> end_of_text() const override { return parts_.end_of_text; }
    std::string kind() const override {
        if (parts_.pre_tokenizer == nullptr || !parts_.pre_tokenizer->is_byte_level()) {
            return "BPE tokenizer";
        }
        return parts_.model->has_merges() ? "byte-level BPE tokenizer" : "byte tokenizer";
    }

  private:
    void append_ids(std::string_view text, std::vector<std::int32_t>& ids) const {
        if (!is_utf8(text)) {
            append_ids(to_valid_utf8(text), ids);
            return;
        }
        std::vector<AddedTokenPiece> pieces;
        as_written_.split(text, pieces);
        for (const AddedTokenPiece& piece : pieces) {
            if (piece.id) {
                ids.push_back(*piece.id);
            } else {
                encode_between(std::string(piece.span.of(text)), piece.span.begin == 0, ids);
            }
        }
    }

    /// Encodes text between the added tokens of as_written_.
    void encode_between(std::string text, bool at_start, std::vector<std::int32_t>& ids) const {
        const std::size_t max_bytes = max_grown_bytes(text.size());
        if (parts_.normalizer) {
            text = parts_.normalizer(std::move(text), max_bytes);
        }
        std::vector<AddedTokenPiece> pieces;
        normalized_.split(text, pieces);
        for (const AddedTokenPiece& piece : pieces) {
            if (piece.id) {
                ids.push_back(*piece.id);
                continue;
            }
            Words words;
            words.text = piece.span.of(text);
            words.spans = {{0, words.text.size()}};
            words.at_start = at_start && piece.span.begin == 0;
            words.max_bytes = max_bytes;
            if (parts_.pre_tokenizer != nullptr) {
                parts_.pre_tokenizer->apply(words);
            }
            for (const TextSpan& word : words.spans) {
                parts_.model->encode(word.of(words.text), ids);
            }
        }
    }

    std::string_view token_of(std::int32_t id) const {
        const auto added = content_of_.find(id);
        if (added != content_of_.end()) {
            return added->second;
        }
        return parts_.model->token(id).value_or("\xEF\xBF\xBD");
    }

    Components parts_;
    AddedTokenFinder as_written_;
    AddedTokenFinder normalized_;
    boost::unordered_flat_map<std::int32_t, std::string> content_of_;  // of added tokens
    boost::unordered_flat_set<std::int32_t> special_;
    std::uint32_t size_ = 0;
};

/// Reads a member into `part`, which stays as it is without the member.
template <class Part>
Result<void> read_member(const json::object& root, std::string_view name, Result<Part> (*read)(const json::value&),
                         Part& part) {
    if (const json::value* found = member_of(root, name)) {
        Result<Part> made = read(*found);
        if (!made) {
            return made.error();
        }
        part = std::move(*made);
    }
    return {};
}

Result<void> read_components(const json::object& root, Components& parts) {
    for (const std::string_view name : {"truncation", "padding"}) {
        if (const json::value* found = member_of(root, name)) {
            return not_understood(name, *found);
        }
    }
    if (auto read = read_member(root, "normalizer", make_normalizer, parts.normalizer); !read) {
        return read;
    }
    if (auto read = read_member(root, "pre_tokenizer", make_pre_tokenizer, parts.pre_tokenizer); !read) {
        return read;
    }
    const json::value* model = member_of(root, "model");
    if (model == nullptr || !model->is_object()) {
        return invalid_input("has no \"model\"");
    }
    const bool byte_level = parts.pre_tokenizer != nullptr && parts.pre_tokenizer->is_byte_level();
    Result<Bpe> bpe = Bpe::read(*model, byte_level);
    if (!bpe) {
        return bpe.error();
    }
    parts.model.emplace(std::move(*bpe));
    if (auto read = read_member(root, "post_processor", read_post_processor, parts.frame); !read) {
        return read;
    }
    if (auto read = read_member(root, "decoder", make_token_decoder, parts.decoder); !read) {
        return read;
    }
    if (auto read = read_member(root, "added_tokens", read_added_tokens, parts.added); !read) {
        return read;
    }
    return {};
}

std::optional<std::int32_t> common_end(const Components& parts) {
    for (const AddedToken& token : parts.added) {
        if (token.content == kByteEndOfTextToken) {
            return token.id;
        }
    }
    return parts.model->id(kByteEndOfTextToken);
}

/// `end_of_text` is the id that ends a document, according to tokenizer_config.json; empty: <|endoftext|>, if there is
/// one.
Result<std::unique_ptr<Tokenizer>> make_json_tokenizer(const json::value& content,
                                                       const std::optional<std::int32_t>& end_of_text) {
    const json::object* root = content.if_object();
    if (root == nullptr) {
        return invalid_input("is not a JSON object");
    }
    Components parts;
    if (const Result<void> read = read_components(*root, parts); !read) {
        return read.error();
    }
    parts.end_of_text = end_of_text ? end_of_text : common_end(parts);
    try {
        return std::unique_ptr<Tokenizer>(std::make_unique<JsonTokenizer>(std::move(parts)));
    } catch (const ErrorException& of_added_token) {  // its normalized form is too long
        return of_added_token.error();
    }
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const fs::path& folder) {
    const fs::path file = folder / "tokenizer.json";
    std::error_code code;
    const bool there = fs::exists(file, code);
    if (code) {
        return io_error(file.string() + ": cannot be examined: " + code.message());
    }
    if (!there) {
        return std::unique_ptr<Tokenizer>();
    }
    const Result<json::value> content = read_json_file(file);
    if (!content) {
        return content.error();
    }
    const Result<std::optional<SpecialTokens>> special = read_special_tokens(folder);
    if (!special) {
        return special.error();
    }
    std::optional<std::int32_t> end_of_text;
    if (*special && !(*special)->eos.empty()) {
        end_of_text = static_cast<std::int32_t>((*special)->eos.front());
    }
    Result<std::unique_ptr<Tokenizer>> made = make_json_tokenizer(*content, end_of_text);
    if (!made) {
        return Error{made.error().kind, file.string() + ": " + made.error().message};
    }
    return made;
}

}  // namespace distilld
