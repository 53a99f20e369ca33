#include "base/files/open_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>

#include "base/files/files.hpp"
#include "base/files/folder_lock.hpp"
#include "base/files/mapped_file.hpp"
#include "base/files/without_links.hpp"
#include "base/sha256.hpp"
#include "tests/support/confined_child.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;
using test::in_confined_child;
using test::outcome_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kSecret = "the secret";

std::string content_of(const Descriptor& file) {
    std::array<char, 64> bytes{};
    const auto count = ::pread(file.get(), bytes.data(), bytes.size(), 0);
    return {bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
}

class OpenFileTest : public ::testing::Test {
  protected:
    OpenFileTest() {
        for (const char* name : {"root", "other", "outside", "service"}) {
            fs::create_directory(at(name));
        }
        folder_.write("outside/secret", kSecret);
        folder_.write("root/own", "own");
    }

    fs::path at(const std::string& name) const { return fs::canonical(folder_.path()) / name; }
    FileRule rule() const { return {.roots = {at("root"), at("other")}}; }
    std::string opened(const fs::path& path, const FileRule& rule) const {
        const auto file = open_file(path, O_RDONLY, 0, &rule);
        return file ? content_of(*file) : outcome_of(file);
    }

    test::TemporaryFolder folder_;
};

TEST_F(OpenFileTest, F3AFileIsOpenedWhereItsPathLeads) {
    EXPECT_EQ(opened(at("root/own"), rule()), "own");
    EXPECT_EQ(opened(at("root/../root/own"), rule()), "own");
    EXPECT_THAT(opened(at("outside/secret"), rule()),
                AllOf(StartsWith("path_not_allowed: '" + at("outside/secret").string() + "' is not below a folder"),
                      HasSubstr(at("root").string())));
    EXPECT_THAT(opened(at("root/../outside/secret"), rule()), StartsWith("path_not_allowed"));
}

TEST_F(OpenFileTest, F3LinksOutOfTheRootsAreRefusedHoweverTheyLead) {
    fs::create_symlink(at("outside/secret"), at("root/absolute"));
    fs::create_symlink("../outside/secret", at("root/relative"));
    fs::create_symlink("absolute", at("root/second"));
    fs::create_directory_symlink("../outside", at("root/folder"));
    fs::create_symlink("loop", at("root/loop"));
    for (const char* name : {"absolute", "relative", "second", "folder/secret", "loop"}) {
        const std::string said = opened(at("root") / name, rule());
        EXPECT_THAT(said, AllOf(StartsWith("path_not_allowed"), HasSubstr(name))) << name;
        EXPECT_EQ(said.find("outside"), std::string::npos) << "where a link leads is not told";
    }
    const FileRule all = rule();
    EXPECT_THAT(outcome_of(open_folder(at("root/folder"), &all)), StartsWith("path_not_allowed"));
    EXPECT_THAT(outcome_of(names_in(at("root/folder"), &all)), StartsWith("path_not_allowed"));
}

/// As the Hugging Face cache has them: snapshots of links to blobs, which may lie below another root.
TEST_F(OpenFileTest, F3LinksFromOneRootToAnotherKeepWorking) {
    fs::create_directories(at("other/blobs"));
    fs::create_directories(at("root/snapshots/main"));
    folder_.write("other/blobs/1f2e", "weights");
    fs::create_symlink("../../../other/blobs/1f2e", at("root/snapshots/main/model.safetensors"));
    fs::create_symlink(at("other/blobs/1f2e"), at("root/snapshots/main/again"));
    fs::create_directory_symlink("snapshots/main", at("root/model"));
    for (const char* name : {"snapshots/main/model.safetensors", "snapshots/main/again", "model/model.safetensors"}) {
        EXPECT_EQ(opened(at("root") / name, rule()), "weights") << name;
    }
}

TEST_F(OpenFileTest, F3TheServicesOwnFilesAreNotAllowedThoughARootHoldsThem) {
    FileRule all{.roots = {fs::canonical(folder_.path())},
                 .own_folder = at("service"),
                 .own_names = {"keys.", "jobs.sqlite", "files"},
                 .given = {at("service/files/mine")}};
    fs::create_directories(at("service/files/mine"));
    fs::create_directories(at("service/files/theirs"));
    for (const char* name : {"keys.json", "jobs.sqlite", "jobs.sqlite-wal", "files/mine/data", "files/theirs/data"}) {
        folder_.write(std::string("service/") + name, name);
    }
    fs::create_symlink("../service/keys.json", at("root/link"));
    fs::create_symlink("../theirs/data", at("service/files/mine/link"));
    for (const char* name : {"service/keys.json", "service/jobs.sqlite-wal", "service/files/theirs/data", "root/link",
                             "service/files/mine/link", "service/files/mine/../theirs/data"}) {
        EXPECT_THAT(opened(at(name), all), AllOf(StartsWith("path_not_allowed"), HasSubstr("of the service itself")))
            << name;
    }
    EXPECT_EQ(opened(at("service/files/mine/data"), all), "files/mine/data");
    folder_.write("service/mine.jsonl", "mine");
    EXPECT_EQ(opened(at("service/mine.jsonl"), all), "mine");
}

TEST_F(OpenFileTest, F3ASwapBetweenJudgingAndOpeningGainsNothing) {
    // A folder that is a link to the outside every other moment, and a file as well.
    fs::create_directory(at("root/real"));
    folder_.write("root/real/secret", "inside");
    fs::create_directory_symlink("real", at("root/folder"));
    folder_.write("root/file", "inside");
    fs::create_directory_symlink("../outside", at("root/evil_folder"));
    fs::create_symlink("../outside/secret", at("root/evil_file"));
    std::jthread swapper([this](const std::stop_token& stop) {
        const auto exchange = [this](const char* one, const char* other) {
            ::renameat2(AT_FDCWD, at(one).c_str(), AT_FDCWD, at(other).c_str(), RENAME_EXCHANGE);
        };
        while (!stop.stop_requested()) {
            exchange("root/folder", "root/evil_folder");
            exchange("root/real", "root/evil_folder");
            exchange("root/file", "root/evil_file");
        }
    });
    const FileRule allowed = rule();
    int inside = 0;
    int refused = 0;
    for (int tries = 0; tries < 10000 || (tries < 400000 && (inside < 100 || refused < 100)); ++tries) {
        for (const char* name : {"root/folder/secret", "root/real/secret", "root/file"}) {
            const std::string content = opened(at(name), allowed);
            ASSERT_NE(content, kSecret) << name;
            inside += content == "inside" ? 1 : 0;
            refused += content.starts_with("path_not_allowed") ? 1 : 0;
        }
    }
    swapper.request_stop();
    EXPECT_GT(inside, 0);
    EXPECT_GT(refused, 0);
}

/// What a hook between judging and opening would do: the path was judged, and a link stands on it when it is opened.
TEST_F(OpenFileTest, F3WhatWasJudgedIsOpenedOrNothing) {
    using Open = std::function<Descriptor(const fs::path&, int, mode_t)>;
    fs::create_directory(at("root/real"));
    folder_.write("root/real/file", "inside");
    fs::create_directory_symlink("real", at("root/link"));
    fs::create_symlink("file", at("root/real/alias"));
    for (const Open& open : {Open(open_without_links), Open(walk_without_links)}) {
        EXPECT_EQ(content_of(open(at("root/real/file"), O_RDONLY, 0)), "inside");
        EXPECT_TRUE(open("/", O_RDONLY | O_DIRECTORY, 0));
        for (const char* name : {"root/link/file", "root/real/alias", "root/link"}) {
            errno = 0;
            EXPECT_FALSE(open(at(name), O_RDONLY, 0)) << name;
            EXPECT_TRUE(errno == ELOOP || errno == ENOTDIR) << name << ": " << errno;
        }
        EXPECT_FALSE(open(at("root/real/absent"), O_RDONLY, 0));
        EXPECT_EQ(errno, ENOENT);
        EXPECT_FALSE(open(at("root/real/alias"), O_WRONLY | O_CREAT, 0600));
        EXPECT_TRUE(open(at("root/real/made"), O_WRONLY | O_CREAT | O_EXCL, 0600));
        fs::remove(at("root/real/made"));
    }
    EXPECT_FALSE(make_without_links(at("root/link/below")));
    EXPECT_FALSE(fs::exists(at("root/real/below")));
}

TEST_F(OpenFileTest, F3FoldersAreMadeInsideOnly) {
    fs::create_directory_symlink("../outside", at("root/checkpoints"));
    fs::create_directory_symlink("../outside/new", at("root/dangling"));
    fs::create_directory_symlink("../other", at("root/to_other"));
    const auto made = [this](const fs::path& folder) {
        return in_confined_child(rule(), [&] { return outcome_of(make_folders(folder)); });
    };
    EXPECT_THAT(made(at("root/checkpoints/step-1")), StartsWith("path_not_allowed"));
    EXPECT_THAT(made(at("root/dangling")), StartsWith("path_not_allowed"));
    EXPECT_FALSE(fs::exists(at("outside/step-1")) || fs::exists(at("outside/new")));
    EXPECT_EQ(made(at("root/a/b/c")), "done");
    EXPECT_EQ(made(at("root/a/b/c")), "done");
    EXPECT_EQ(made(at("root/to_other/d")), "done");
    EXPECT_TRUE(fs::is_directory(at("root/a/b/c")) && fs::is_directory(at("other/d")));
    EXPECT_THAT(made(at("root/own/below")), StartsWith("io: "));
}

TEST_F(OpenFileTest, F3NamesAreChangedInsideOnly) {
    fs::create_directory_symlink("../outside", at("root/out"));
    const auto refused = [this](const std::function<std::string()>& what) {
        EXPECT_THAT(in_confined_child(rule(), what), StartsWith("path_not_allowed"));
    };
    const fs::path inside = at("root/own");
    const fs::path outside = at("root/out/secret");
    refused([&] { return outcome_of(rename_entry(inside, outside)); });
    refused([&] { return outcome_of(rename_entry(outside, inside)); });
    refused([&] { return outcome_of(exchange_entries(inside, outside)); });
    refused([&] { return outcome_of(exchange_entries(outside, inside)); });
    refused([&] { return outcome_of(remove_entry(outside)); });
    refused([&] { return outcome_of(remove_tree(outside)); });
    refused([&] { return outcome_of(make_new_folder(at("root/out/new"))); });
    refused([&] { return outcome_of(AtomicFile::create(outside)); });
    refused([&] { return outcome_of(copy_file_atomically(outside, inside)); });
    refused([&] { return outcome_of(read_text_file(outside, 100)); });
    refused([&] { return outcome_of(MappedFile::open(outside)); });
    refused([&] { return outcome_of(sha256_file(outside)); });
    refused([&] { return outcome_of(FolderLock::try_lock_file(at("root/out"))); });
    refused([&] { return outcome_of(sync_folder(at("root/out"))); });
    EXPECT_EQ(test::read_bytes(at("outside/secret")), kSecret);
    EXPECT_EQ(test::read_bytes(inside), "own");
    EXPECT_EQ(test::file_count(at("outside")), 1U);

    const auto done = in_confined_child(rule(), [&]() -> std::string {
        for (const auto& result : {write_file_atomically(at("root/new"), "new"), make_new_folder(at("root/made")),
                                   rename_entry(at("root/new"), at("other/new")), remove_tree(at("root/out"))}) {
            if (!result) {
                return outcome_of(result);
            }
        }
        return outcome_of(exchange_entries(inside, at("other/new")));
    });
    EXPECT_EQ(done, "done");
    EXPECT_EQ(test::read_bytes(inside), "new");
    EXPECT_EQ(test::read_bytes(at("other/new")), "own");
    EXPECT_FALSE(fs::exists(fs::symlink_status(at("root/out"))));
    EXPECT_TRUE(fs::exists(at("outside/secret")));
}

TEST_F(OpenFileTest, ATreeIsRemovedWithoutFollowingLinks) {
    fs::create_directories(at("root/tree/below/deep"));
    folder_.write("root/tree/below/file", "x");
    fs::create_directory_symlink("../../outside", at("root/tree/out"));
    EXPECT_EQ(outcome_of(remove_tree(at("root/tree"))), "done");
    EXPECT_FALSE(fs::exists(at("root/tree")));
    EXPECT_TRUE(fs::exists(at("outside/secret")));
    EXPECT_EQ(outcome_of(remove_tree(at("root/tree"))), "done");
    EXPECT_EQ(outcome_of(remove_entry(at("root/tree/below"))), "done");
}

/// Whoever opened a pipe to read it would wait for its writer for ever.
TEST_F(OpenFileTest, F11WhatIsNoRegularFileIsRefusedAtOnce) {
    ASSERT_EQ(::mkfifo(at("root/pipe").c_str(), 0666), 0);
    const int server = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{AF_UNIX, {}};
    at("root/socket").string().copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(::bind(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    FileRule devices = rule();
    devices.roots.emplace_back("/dev");
    const FileRule* rules[] = {nullptr, &devices};
    for (const FileRule* allowed : rules) {
        for (const fs::path& path :
             {at("root/pipe"), at("root/socket"), fs::path("/dev/zero"), fs::path("/dev/null")}) {
            for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR}) {
                const auto file = open_file(path, flags, 0, allowed);
                EXPECT_EQ(outcome_of(file),
                          "invalid_input: " + path.string() + ": is not a regular file (a pipe, a socket or a device)");
            }
        }
        EXPECT_THAT(outcome_of(open_file(at("root"), O_RDONLY, 0, allowed)), HasSubstr("is a folder"));
    }
    ::close(server);
    for (const auto& said : {outcome_of(read_text_file(at("root/pipe"), 100)), outcome_of(sha256_file(at("root/pipe"))),
                             outcome_of(MappedFile::open(at("root/pipe"))),
                             outcome_of(copy_file_atomically(at("root/pipe"), at("root/copy")))}) {
        EXPECT_THAT(said, HasSubstr("is not a regular file"));
    }
}

TEST_F(OpenFileTest, AProcessIsConfinedOnce) {
    EXPECT_EQ(file_rule(), nullptr);
    const auto again = [this]() -> std::string {
        confine_files(rule());
        return "confined anew";
    };
    EXPECT_THAT(in_confined_child(rule(), again), StartsWith("thrown: "));
}

}  // namespace
}  // namespace distilld
