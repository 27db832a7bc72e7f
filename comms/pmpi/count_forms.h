// The width of counts for the wrappers that follow: LS_COUNT, LS_DISPLACEMENT, and LS_FORM(name), the name in that
// form. int, or with LS_LARGE defined the large counts of MPI 4.0. Included as often as it is needed; no include guard.

#undef LS_COUNT
#undef LS_DISPLACEMENT
#undef LS_WRAPPER
#undef LS_REAL
#ifdef LS_LARGE
#define LS_COUNT MPI_Count
#define LS_DISPLACEMENT MPI_Aint
#define LS_WRAPPER(name) MPI_##name##_c
#define LS_REAL(name, ...) LS_PMPI(name##_c, __VA_ARGS__)
#else
#define LS_COUNT int
#define LS_DISPLACEMENT int
#define LS_WRAPPER(name) MPI_##name
#define LS_REAL(name, ...) LS_PMPI(name, __VA_ARGS__)
#endif
