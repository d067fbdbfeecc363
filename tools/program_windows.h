/* program_windows.h - what program.h does on Windows: streams of bytes, names and arguments in UTF-8, files that
   replace others. */
#ifndef PROGRAM_WINDOWS_H
#define PROGRAM_WINDOWS_H

#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <io.h>
#include <windows.h>
#include <shellapi.h>

#define PROGRAM_BACKSLASH 1 /* whether it ends the name of a folder */
#define PROGRAM_PATH 1024 /* characters of a path, at most */

/* A path in UTF-8 as Windows wants it. Returns 0 and sets errno when it is too long, or no UTF-8. */
static int program_widen(WCHAR wide[PROGRAM_PATH], const char *text)
{
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, wide, PROGRAM_PATH))
        return 1;
    errno = ENOENT;
    return 0;
}

/* An argument in UTF-8; NULL when there is no memory. It lives as long as the program. */
static char *program_narrow(const WCHAR *wide)
{
    int size = WideCharToMultiByte(CP_UTF8, 0, wide, -1, NULL, 0, NULL, NULL);
    char *text = size > 0 ? (char *)malloc((size_t)size) : NULL;

    if (text)
        WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, size, NULL, NULL);
    return text;
}

/* What is done before the command line is read. Streams carry bytes, except for what is typed. The console shows UTF-8.
   Arguments become UTF-8, unless the C library has already expanded a * in them. */
static void program_prepare(int argc, char **argv)
{
    int count = 0, i;
    WCHAR **wide = CommandLineToArgvW(GetCommandLineW(), &count);

    if (!_isatty(STDIN_FILENO))
        _setmode(STDIN_FILENO, _O_BINARY);
    _setmode(STDOUT_FILENO, _O_BINARY);
    SetConsoleOutputCP(CP_UTF8);
    SetConsoleCP(CP_UTF8);
    for (i = 1; wide && count == argc && i < argc; i++) {
        char *text = program_narrow(wide[i]);

        argv[i] = text ? text : argv[i];
    }
    LocalFree(wide);
}

/* Room for so many bytes; NULL and errno when there is none. */
static PROGRAM_UNUSED void *program_map(size_t bytes)
{
    void *block = VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);

    errno = ENOMEM;
    return block;
}

/* Columns of the console; 80 where that is not known. */
static PROGRAM_UNUSED int program_columns(void)
{
    CONSOLE_SCREEN_BUFFER_INFO about;

    return GetConsoleScreenBufferInfo(GetStdHandle(STD_ERROR_HANDLE), &about)
               ? about.srWindow.Right - about.srWindow.Left + 1
               : 80;
}

static PROGRAM_UNUSED double program_seconds(void)
{
    LARGE_INTEGER now, second;

    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&second);
    return (double)now.QuadPart / (double)second.QuadPart;
}

/* Opens a file to read its bytes. */
static PROGRAM_UNUSED FILE *program_open(const char *path)
{
    WCHAR wide[PROGRAM_PATH];

    return program_widen(wide, path) ? _wfopen(wide, L"rb") : NULL;
}

/* Why the last call of the system failed. */
static PROGRAM_UNUSED const char *program_why(void)
{
    static char text[256];
    DWORD flags = FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS | FORMAT_MESSAGE_MAX_WIDTH_MASK;

    text[FormatMessageA(flags, NULL, GetLastError(), 0, text, sizeof text - 1, NULL)] = 0;
    return text;
}

/* Opens a file to be mapped. Returns what to close, or -1; *size becomes -1 when it is no regular file. */
static PROGRAM_UNUSED int program_open_view(const char *path, int64_t *size)
{
    WCHAR wide[PROGRAM_PATH];
    LARGE_INTEGER bytes;
    HANDLE file;

    if (!program_widen(wide, path))
        return -1;
    file = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING,
                       FILE_ATTRIBUTE_NORMAL, NULL);
    if (file == INVALID_HANDLE_VALUE) {
        errno = GetLastError() == ERROR_FILE_NOT_FOUND ? ENOENT : EACCES;
        return -1;
    }
    *size = GetFileType(file) == FILE_TYPE_DISK && GetFileSizeEx(file, &bytes) ? (int64_t)bytes.QuadPart : -1;
    return _open_osfhandle((intptr_t)file, _O_RDONLY | _O_BINARY);
}

/* So many bytes of it, read-only until the program ends; NULL when that fails. */
static PROGRAM_UNUSED const void *program_view(int file, size_t size)
{
    HANDLE mapping = CreateFileMappingW((HANDLE)_get_osfhandle(file), NULL, PAGE_READONLY, 0, 0, NULL);
    const void *data = mapping ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, size) : NULL;

    if (mapping)
        CloseHandle(mapping); /* the view keeps it */
    return data;
}

static int program_unlink(const char *path)
{
    WCHAR wide[PROGRAM_PATH];

    return program_widen(wide, path) && DeleteFileW(wide) ? 0 : -1;
}

/* Gives a file another name, also one that is taken. */
static PROGRAM_UNUSED int program_rename(const char *from, const char *to)
{
    WCHAR wide_from[PROGRAM_PATH], wide_to[PROGRAM_PATH];

    if (program_widen(wide_from, from) && program_widen(wide_to, to) &&
        MoveFileExW(wide_from, wide_to, MOVEFILE_REPLACE_EXISTING))
        return 0;
    errno = EACCES;
    return -1;
}

/* A new file, that can be removed while it is open. Returns its descriptor, or -1 and errno. */
static PROGRAM_UNUSED int program_create(const char *path)
{
    WCHAR wide[PROGRAM_PATH];
    HANDLE file;

    if (!program_widen(wide, path))
        return -1;
    file = CreateFileW(wide, GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_DELETE, NULL, CREATE_NEW, 0, NULL);
    if (file == INVALID_HANDLE_VALUE) {
        DWORD why = GetLastError();

        errno = why == ERROR_FILE_EXISTS ? EEXIST : why == ERROR_ACCESS_DENIED ? EACCES : ENOENT;
        return -1;
    }
    return _open_osfhandle((intptr_t)file, _O_WRONLY | _O_BINARY);
}

/* What tells a file from all others; 0 when there is no such file. */
static int program_identify(const char *path, BY_HANDLE_FILE_INFORMATION *about)
{
    WCHAR wide[PROGRAM_PATH];
    HANDLE file;
    int known;

    if (!program_widen(wide, path))
        return 0;
    file = CreateFileW(wide, 0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING, 0, NULL);
    if (file == INVALID_HANDLE_VALUE)
        return 0;
    known = GetFileType(file) == FILE_TYPE_DISK && GetFileInformationByHandle(file, about);
    CloseHandle(file);
    return known;
}

/* Do both paths lead to one file? */
static PROGRAM_UNUSED int program_same_file(const char *path, const char *other)
{
    BY_HANDLE_FILE_INFORMATION a, b;

    if (!program_identify(path, &a) || !program_identify(other, &b))
        return 0;
    return a.dwVolumeSerialNumber == b.dwVolumeSerialNumber && a.nFileIndexHigh == b.nFileIndexHigh &&
           a.nFileIndexLow == b.nFileIndexLow;
}
#endif
