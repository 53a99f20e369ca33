#include "base/crc32c.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace distilld {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text));
}

// RFC 3720, appendix B.4; the last is the check value of CRC-32C in Ross Williams' model.
TEST(Crc32c, IsThatOfTheStandard) {
    std::string ascending;
    for (int i = 0; i < 32; ++i) {
        ascending.push_back(static_cast<char>(i));
    }
    EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8A9136AAU);
    EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xFF'))), 0x62A8AB43U);
    EXPECT_EQ(crc32c(bytes_of(ascending)), 0x46DD794EU);
    EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283U);
    EXPECT_EQ(crc32c_by_tables(bytes_of("123456789")), 0xE3069283U);
    EXPECT_EQ(crc32c({}), 0U);
}

TEST(Crc32c, IsTheSameWithAndWithoutTheInstructionAndInPieces) {
    std::vector<std::byte> bytes(10'000);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>(i * i * 31 + i / 7);
    }
    for (const std::size_t size : {1U, 7U, 8U, 9U, 1023U, 3071U, 3072U, 3073U, 6144U, 9999U, 10'000U}) {
        const auto part = std::span<const std::byte>(bytes).first(size);
        const std::uint32_t whole = crc32c_by_tables(part);
        EXPECT_EQ(crc32c(part), whole) << size;
        EXPECT_EQ(crc32c(part.subspan(size / 3), crc32c(part.first(size / 3))), whole) << size;
    }
}

}  // namespace
}  // namespace distilld
