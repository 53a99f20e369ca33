#include "pipeline/data/tokenizer/byte_tokenizer.hpp"

#include "pipeline/data/tokenizer/tokenizer.hpp"

namespace distilld {

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

    std::uint32_t vocabulary_size() const override { return 257; }
    std::optional<std::int32_t> end_of_text() const override { return kByteEndOfText; }
    std::string kind() const override { return "byte tokenizer"; }
};

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

}  // namespace distilld
