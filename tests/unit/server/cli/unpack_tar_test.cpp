#include "server/cli/jobs/unpack_tar.hpp"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.hpp"

namespace distilld::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Entry {
    std::string name;
    std::string content{};
    unsigned type = AE_IFREG;
    std::string link{};  ///< what a symbolic link or a hard one leads to
};

/// A tar as anybody may write it.
fs::path tar_of(const fs::path& folder, const std::vector<Entry>& entries) {
    const fs::path file = folder / "made.tar";
    archive* writer = archive_write_new();
    archive_write_set_format_pax_restricted(writer);
    archive_write_open_filename(writer, file.c_str());
    for (const Entry& one : entries) {
        archive_entry* entry = archive_entry_new();
        archive_entry_set_pathname(entry, one.name.c_str());
        archive_entry_set_mode(entry, one.type | 0777);
        archive_entry_set_mtime(entry, 1'000'000'000, 0);
        if (one.type == AE_IFLNK) {
            archive_entry_set_symlink(entry, one.link.c_str());
        } else if (!one.link.empty()) {
            archive_entry_set_hardlink(entry, one.link.c_str());
        } else if (one.type == AE_IFREG) {
            archive_entry_set_size(entry, static_cast<la_int64_t>(one.content.size()));
        }
        EXPECT_EQ(archive_write_header(writer, entry), ARCHIVE_OK) << archive_error_string(writer);
        archive_write_data(writer, one.content.data(), one.content.size());
        archive_entry_free(entry);
    }
    archive_write_close(writer);
    archive_write_free(writer);
    return file;
}

class UnpackTar : public ::testing::Test {
  protected:
    Result<UnpackedTar> unpack_file(const fs::path& tar) {
        fs::create_directories(target());
        const int descriptor = ::open(tar.c_str(), O_RDONLY | O_CLOEXEC);
        auto unpacked = unpack_tar(descriptor, target());
        ::close(descriptor);
        return unpacked;
    }
    Result<UnpackedTar> unpack(const std::vector<Entry>& entries) {
        return unpack_file(tar_of(folder_.path(), entries));
    }
    [[nodiscard]] fs::path target() const { return folder_.path() / "target"; }
    static std::string content(const fs::path& file) {
        std::ifstream in(file, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }

    test::TemporaryFolder folder_;
};

TEST_F(UnpackTar, MakesFilesAndFolders) {
    const std::string large(3'000'000, 'x');
    const auto unpacked =
        unpack({{"config.json", "{}"}, {"merged/", "", AE_IFDIR}, {"merged/model.safetensors", large}, {"empty", ""}});
    ASSERT_TRUE(unpacked) << unpacked.error().message;
    EXPECT_EQ(unpacked->files, 3U);
    EXPECT_EQ(unpacked->bytes, 3'000'002U);
    EXPECT_EQ(content(target() / "config.json"), "{}");
    EXPECT_EQ(content(target() / "merged" / "model.safetensors"), large);
    EXPECT_EQ(fs::file_size(target() / "empty"), 0U);
    EXPECT_EQ(fs::status(target() / "config.json").permissions() & fs::perms(0777), fs::perms(0644));
}

TEST_F(UnpackTar, RefusesWhatLeadsOut) {
    const std::vector<std::pair<Entry, std::string>> attacks{
        {{"../escaped", "x"}, "leads out of its folder: ../escaped"},
        {{"a/../../escaped", "x"}, "leads out of its folder"},
        {{(folder_.path() / "escaped").string(), "x"}, "leads out of its folder"},
        {{"link", "", AE_IFLNK, ".."}, "neither a file nor a folder: link"},
        {{"hard", "", AE_IFREG, "/etc/passwd"}, "neither a file nor a folder: hard"},
        {{"pipe", "", AE_IFIFO}, "neither a file nor a folder: pipe"},
    };
    for (const auto& [entry, why] : attacks) {
        const auto unpacked = unpack({{"before", "x"}, entry, {"link/escaped", "x"}});
        ASSERT_FALSE(unpacked) << entry.name;
        EXPECT_THAT(unpacked.error().message, HasSubstr(why));
        EXPECT_FALSE(fs::exists(folder_.path() / "escaped"));
        fs::remove_all(target());
    }
}

TEST_F(UnpackTar, RefusesALinkThatWasThere) {
    fs::create_directories(target());
    fs::create_directories(folder_.path() / "elsewhere");
    fs::create_directory_symlink(folder_.path() / "elsewhere", target() / "link");
    const auto unpacked = unpack({{"link/escaped", "x"}});
    ASSERT_FALSE(unpacked);
    EXPECT_THAT(unpacked.error().message, HasSubstr("symlink"));
    EXPECT_TRUE(fs::is_empty(folder_.path() / "elsewhere"));
}

TEST_F(UnpackTar, SaysThatATarIsCutOff) {
    const auto tar = tar_of(folder_.path(), {{"large", std::string(1'000'000, 'x')}});
    fs::resize_file(tar, 500'000);
    const auto unpacked = unpack_file(tar);
    ASSERT_FALSE(unpacked);
    EXPECT_THAT(unpacked.error().message, HasSubstr("Truncated tar"));
}

TEST_F(UnpackTar, RefusesWhatIsNoTar) {
    std::ofstream(folder_.path() / "page.html") << std::string(5000, '<');
    EXPECT_FALSE(unpack_file(folder_.path() / "page.html"));
}

}  // namespace
}  // namespace distilld::cli
