#include "pipeline/teacher/teacher_key.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "pipeline/core/teacher_key_root.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using testing::HasSubstr;

class TeacherKeyFile : public testing::Test {
  protected:
    TeacherKeyFile() {
        std::filesystem::create_directories(folder_ / "keys" / "math");
        ::setenv(kKeyRootVariable, (folder_ / "keys").c_str(), 1);
    }
    ~TeacherKeyFile() override { ::unsetenv(kKeyRootVariable); }

    void write(const std::string& name, const std::string& text) const {
        std::ofstream(folder_ / name, std::ios::binary) << text;
    }
    static std::string refusal(const std::string& name) {
        const auto key = read_bearer("", name);
        return key ? "read" : key.error().message;
    }

    test::TemporaryFolder folder_;
};

TEST_F(TeacherKeyFile, IsReadBelowTheRootOnly) {
    write("keys/math/key", "s3cret\n");
    write("outside", "s3cret");
    EXPECT_EQ(read_bearer("", "math/key").value(), "s3cret");
    // As Kubernetes mounts a secret: a link to a link, within the folder.
    std::filesystem::create_symlink("math", folder_ / "keys" / "..data");
    std::filesystem::create_symlink("..data/key", folder_ / "keys" / "linked");
    EXPECT_EQ(read_bearer("", "linked").value(), "s3cret");
    std::filesystem::create_symlink(folder_ / "outside", folder_ / "keys" / "out");
    for (const char* name : {"out", "../outside", "math"}) {
        EXPECT_THAT(refusal(name), HasSubstr("/teacher/api_key_file: " + std::string(name) + " is not a file below"));
    }
    EXPECT_THAT(refusal("absent"), HasSubstr("is not in the folder of keys: No such file"));
    ::unsetenv(kKeyRootVariable);
    EXPECT_THAT(refusal("math/key"), HasSubstr("there is no folder of keys"));
}

TEST_F(TeacherKeyFile, IsOneLine) {
    write("keys/two", "s3cret\ns3cret\n");
    EXPECT_THAT(refusal("two"), HasSubstr("two has more than one line"));
    EXPECT_THAT(refusal("two"), Not(HasSubstr("s3cret")));
    write("keys/empty", "\r\n");
    EXPECT_NE(refusal("empty"), "read");
    write("keys/large", std::string(70000, 'x'));
    EXPECT_THAT(refusal("large"), HasSubstr("too large for a key"));
}

}  // namespace
}  // namespace distilld
