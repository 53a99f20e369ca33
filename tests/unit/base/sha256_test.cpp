#include "base/sha256.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using test::TemporaryFolder;
using test::write_bytes;
using ::testing::HasSubstr;

TEST(Sha256File, AgreesWithPublishedVectors) {
    const TemporaryFolder folder;
    write_bytes(folder / "empty", "");
    write_bytes(folder / "abc", "abc");
    write_bytes(folder / "million", std::string(1'000'000, 'a'));
    // FIPS 180-4 examples.
    EXPECT_EQ(sha256_file(folder / "empty").value(),
              "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(sha256_file(folder / "abc").value(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(sha256_file(folder / "million").value(),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    EXPECT_THAT(sha256_file(folder / "absent").error().message, HasSubstr("absent: cannot open"));
}

TEST(Sha256, IsThatOfAText) {
    EXPECT_EQ(sha256_text("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, IsThatOfThePiecesTogether) {
    Sha256 pieces;
    pieces.add(std::span<const char>(std::string_view("a")));
    pieces.add(std::span<const char>(std::string_view("bc")));
    EXPECT_EQ(pieces.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");  // FIPS 180-2
}

TEST(Sha256, TakesNumbersInMemoryOrder) {
    Sha256 number;
    number.add(std::uint64_t{0x0807060504030201});
    Sha256 bytes;
    bytes.add(std::span<const char>(std::string_view("\x01\x02\x03\x04\x05\x06\x07\x08")));
    EXPECT_EQ(number.hex(), bytes.hex());
}

}  // namespace
}  // namespace distilld
