#include "pipeline/store/kld_file.hpp"

#include <cstring>
#include <string_view>
#include <utility>

namespace distilld {

namespace {

constexpr std::string_view kMagic = "_logits_";
constexpr std::size_t kNumbers = 3;
constexpr std::size_t kHeaderBytes = kMagic.size() + kNumbers * sizeof(std::int32_t);
constexpr std::int32_t kMinContext = 4;
constexpr std::int32_t kMaxVocabulary = 1 << 24;

std::uint64_t rows_of(std::uint64_t context) noexcept {
    return context - 1 - context / 2;
}

/// Scale and minimum, then the codes, padded to an even number.
std::uint64_t row_bytes(std::uint64_t vocabulary) noexcept {
    return 2 * sizeof(float) + (vocabulary + 1) / 2 * 2 * sizeof(std::uint16_t);
}

}  // namespace

Result<KldFile> KldFile::open(const std::filesystem::path& file) {
    Result<MappedFile> mapped = MappedFile::open(file);
    if (!mapped) {
        return mapped.error();
    }
    const std::span<const std::byte> bytes = mapped->bytes();
    if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
        return invalid_input(file.string() + ": is not a file of llama.cpp's --kl-divergence-base");
    }
    std::int32_t numbers[kNumbers];
    std::memcpy(numbers, bytes.data() + kMagic.size(), sizeof numbers);
    const auto [context, vocabulary, chunks] = numbers;
    if (context < kMinContext || vocabulary < 1 || vocabulary > kMaxVocabulary || chunks < 1) {
        return invalid_input(file.string() + ": contexts of " + std::to_string(context) + " tokens, a vocabulary of " +
                             std::to_string(vocabulary) + " and " + std::to_string(chunks) + " chunks cannot be");
    }
    // Below 2^31 · 4 + 2^31 · 2^26, so the size of one chunk does not overflow.
    const std::uint64_t each =
        static_cast<std::uint64_t>(context) * sizeof(std::int32_t) +
        rows_of(static_cast<std::uint64_t>(context)) * row_bytes(static_cast<std::uint64_t>(vocabulary));
    if (each > (bytes.size() - kHeaderBytes) / static_cast<std::uint64_t>(chunks)) {
        return invalid_input(file.string() + ": is cut off: " + std::to_string(chunks) + " chunks of " +
                             std::to_string(context) + " tokens with a vocabulary of " + std::to_string(vocabulary) +
                             " do not fit into its " + std::to_string(bytes.size()) + " bytes");
    }
    return KldFile(std::move(*mapped), static_cast<std::uint32_t>(context), static_cast<std::uint32_t>(vocabulary),
                   static_cast<std::uint32_t>(chunks));
}

std::int32_t KldFile::token(std::uint32_t chunk, std::uint32_t position) const noexcept {
    std::int32_t token = 0;
    const std::uint64_t at = std::uint64_t{chunk} * context_ + position;
    std::memcpy(&token, file_.bytes().data() + kHeaderBytes + at * sizeof token, sizeof token);
    return token;
}

void KldFile::read_row(std::uint32_t chunk, std::uint32_t position, std::span<float> values) const noexcept {
    const std::uint64_t tokens = std::uint64_t{chunks_} * context_ * sizeof(std::int32_t);
    const std::uint64_t row = chunk * rows_of(context_) + (position - first_row());
    const std::byte* from = file_.bytes().data() + kHeaderBytes + tokens + row * row_bytes(vocabulary_);
    float line[2];  // scale and minimum
    std::memcpy(line, from, sizeof line);
    from += sizeof line;
    for (std::uint32_t i = 0; i < vocabulary_; ++i) {
        std::uint16_t code = 0;
        std::memcpy(&code, from + i * sizeof code, sizeof code);
        values[i] = line[0] * static_cast<float>(code) + line[1];
    }
}

}  // namespace distilld
