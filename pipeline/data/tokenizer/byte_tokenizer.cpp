#include "pipeline/data/tokenizer/byte_tokenizer.hpp"

#include <boost/json/value.hpp>
#include <utility>

#include "base/files/files.hpp"
#include "base/json_text.hpp"
#include "pipeline/data/tokenizer/tokenizer.hpp"

namespace distilld {

namespace json = boost::json;
namespace fs = std::filesystem;

namespace {

class ByteTokenizer final : public Tokenizer {
  public:
    std::vector<std::int32_t> encode(std::string_view text) const override {
        std::vector<std::int32_t> ids;
        ids.reserve(text.size());
        for (;;) {
            const std::size_t special = text.find(kByteEndOfTextToken);
            for (const char c : text.substr(0, special)) {
                ids.push_back(static_cast<unsigned char>(c));
            }
            if (special == std::string_view::npos) {
                return ids;
            }
            ids.push_back(kByteEndOfText);
            text.remove_prefix(special + kByteEndOfTextToken.size());
        }
    }

    std::string decode(const std::vector<std::int32_t>& ids) const override {
        std::string text;
        text.reserve(ids.size());
        for (const std::int32_t id : ids) {
            if (id >= 0 && id < 256) {
                text.push_back(static_cast<char>(id));
            } else if (id == kByteEndOfText) {
                text += kByteEndOfTextToken;
            } else {
                text += "\xEF\xBF\xBD";
            }
        }
        return text;
    }

    bool is_special(std::int32_t id) const override { return id == kByteEndOfText; }
    std::string token_bytes(std::int32_t id) const override {
        return id >= 0 && id <= kByteEndOfText ? decode({id}) : std::string();
    }

    std::uint32_t vocabulary_size() const override { return 257; }
    std::optional<std::int32_t> end_of_text() const override { return kByteEndOfText; }
    std::string kind() const override { return "byte tokenizer"; }
};

// A reader sees either the old file or the whole new one.
Result<void> write_json(const fs::path& file, const json::value& content) {
    return write_file_atomically(file, to_text(content) + "\n");
}

json::object end_of_text_token() {
    return {{"content", kByteEndOfTextToken},
            {"single_word", false},
            {"lstrip", false},
            {"rstrip", false},
            {"normalized", false},
            {"special", true}};
}

json::object tokenizer_config_json() {
    return {{"tokenizer_class", "PreTrainedTokenizerFast"},
            {"eos_token", kByteEndOfTextToken},
            {"clean_up_tokenization_spaces", false},
            {"added_tokens_decoder", json::object{{std::to_string(kByteEndOfText), end_of_text_token()}}}};
}

}  // namespace

std::array<std::string, 256> byte_level_alphabet() {
    std::array<std::string, 256> alphabet;
    unsigned next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
        const bool printable =
            (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
        const unsigned code = printable ? byte : next++;
        if (code < 0x80) {
            alphabet[byte] = std::string(1, static_cast<char>(code));
        } else {
            alphabet[byte] = {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
        }
    }
    return alphabet;
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
    return std::make_unique<ByteTokenizer>();
}

json::value byte_tokenizer_json() {
    json::object vocabulary;
    const auto alphabet = byte_level_alphabet();
    for (std::size_t byte = 0; byte < alphabet.size(); ++byte) {
        vocabulary.emplace(alphabet[byte], byte);
    }
    json::object added = end_of_text_token();
    added.emplace("id", kByteEndOfText);
    // ByteLevel's own regex would only split the text into words first, which changes nothing without merges.
    const json::object byte_level = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
    return json::object{{"version", "1.0"},
                        {"truncation", nullptr},
                        {"padding", nullptr},
                        {"added_tokens", json::array{added}},
                        {"normalizer", nullptr},
                        {"pre_tokenizer", byte_level},
                        {"post_processor", nullptr},
                        {"decoder", byte_level},
                        {"model", json::object{{"type", "BPE"},
                                               {"dropout", nullptr},
                                               {"unk_token", nullptr},
                                               {"continuing_subword_prefix", nullptr},
                                               {"end_of_word_suffix", nullptr},
                                               {"fuse_unk", false},
                                               {"byte_fallback", false},
                                               {"ignore_merges", false},
                                               {"vocab", std::move(vocabulary)},
                                               {"merges", json::array{}}}}};
}

Result<std::vector<fs::path>> write_byte_tokenizer(const fs::path& folder) {
    if (auto made = make_folders(folder); !made) {
        return made.error();
    }
    const std::pair<const char*, json::value> files[] = {
        {"tokenizer.json", byte_tokenizer_json()},
        {"tokenizer_config.json", tokenizer_config_json()},
        {"special_tokens_map.json", {{"eos_token", kByteEndOfTextToken}}}};
    std::vector<fs::path> paths;
    for (const auto& [name, content] : files) {
        if (const auto written = write_json(folder / name, content); !written) {
            return written.error();
        }
        paths.push_back(folder / name);
    }
    return paths;
}

}  // namespace distilld
