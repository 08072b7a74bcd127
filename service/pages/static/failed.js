// The page of a session that cannot be shown, but can be deleted.
import { deleteForm } from "./api.js";

deleteForm();
